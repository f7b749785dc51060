"""A chat server for tests, on a real socket of this machine, that misbehaves on demand.

>>> with FakeChatServer(lambda body: "Paris", faults=[Fault.status(429, retry_after="0.1"), Fault.cut()]) as server:
...     openai_chat(server.base_url, "any").chat("Capital of France?").text
'Paris'
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast


@dataclass(frozen=True)
class Fault:
    """What happens to one request instead of a prompt and proper answer; made by the class methods."""

    kind: str
    code: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str = ""
    seconds: float = 0.0

    @classmethod
    def status(
        cls, code: int, message: str = "no", *, error_code: str | None = None, retry_after: str | None = None
    ) -> Fault:
        """Answer with an HTTP error and an OpenAI error body."""
        body = json.dumps({"error": {"message": message, "type": "error", "code": error_code}})
        return cls("body", code, {} if retry_after is None else {"Retry-After": retry_after}, body)

    @classmethod
    def body_is(cls, body: str) -> Fault:
        """Answer 200 with this text."""
        return cls("body", body=body)

    @classmethod
    def malformed(cls) -> Fault:
        """Answer 200 with half a JSON object; a streamed answer has one such piece."""
        return cls("malformed", body='{"choices": [{"message": {"content": "Pa')

    @classmethod
    def cut(cls) -> Fault:
        """Close the connection in the middle of the answer."""
        return cls("cut")

    @classmethod
    def drop(cls) -> Fault:
        """Close the connection without a word."""
        return cls("drop")

    @classmethod
    def slow(cls, seconds: float) -> Fault:
        """Answer properly, but only after a while."""
        return cls("slow", seconds=seconds)

    @classmethod
    def trickle(cls, seconds: float) -> Fault:
        """Send the answer in single bytes with this long between them."""
        return cls("trickle", seconds=seconds)


class FakeChatServer:
    """An OpenAI-compatible server in a thread; use it as a context manager.

    Parameters
    ----------
    answer
        From the request's body to the text, or to a whole choice; by default the last message's content. May sleep.
    faults
        Used up one per request, in order (None: no fault); then all is well. Or a function from the request's body
        to a fault or None.
    key
        Refuse other keys with 401.
    logprobs
        Give log-probabilities where they are asked for: a token a word, each with probability 1/2.

    Attributes
    ----------
    base_url : str
        For `openai_chat`.
    requests : list of dict
        The bodies received.
    times : list of float
        When, in seconds of `time.monotonic`.
    most_open : int
        The largest number of requests that were open at once.
    """

    def __init__(
        self,
        answer: Callable[[dict[str, Any]], str | dict[str, Any]] | None = None,
        *,
        faults: Iterable[Fault | None] | Callable[[dict[str, Any]], Fault | None] = (),
        key: str | None = None,
        logprobs: bool = True,
    ) -> None:
        self.requests: list[dict[str, Any]] = []
        self.times: list[float] = []
        self.most_open = 0
        self.key = key
        self.logprobs = logprobs
        self._answer = answer or (lambda body: body["messages"][-1]["content"])
        self._faults: Callable[[dict[str, Any]], Fault | None]
        self._faults = _one_each(faults) if isinstance(faults, Iterable) else faults
        self._open = 0
        self._closing = threading.Event()  # wakes the slow answers
        self._lock = threading.Lock()
        self._http = _Listener(self)
        self.base_url = f"http://127.0.0.1:{self._http.server_address[1]}/v1"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> FakeChatServer:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._closing.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def settled(self, quiet: float = 0.25) -> int:
        """Wait until nothing has arrived for ``quiet`` seconds, and count the requests.

        What a client sent before it was killed may be read only after its death.
        """
        seen = -1
        while seen < len(self.requests):
            seen = len(self.requests)
            self._closing.wait(quiet)
        return seen

    @contextlib.contextmanager
    def _receive(self, body: dict[str, Any]) -> Generator[Fault | None]:
        with self._lock:
            self.requests.append(body)
            self.times.append(time.monotonic())
            self._open += 1
            self.most_open = max(self.most_open, self._open)
            fault = self._faults(body)
        try:
            yield fault
        finally:
            with self._lock:
                self._open -= 1

    def _choice(self, body: dict[str, Any]) -> dict[str, Any]:
        said = self._answer(body)
        if isinstance(said, dict):
            return {"index": 0, "finish_reason": "stop", **said}
        choice: dict[str, Any] = {
            "index": 0,
            "finish_reason": "stop",
            "message": {"role": "assistant", "content": said},
        }
        if body.get("logprobs") and self.logprobs:
            choice["logprobs"] = {"content": [_half(token, body.get("top_logprobs", 0)) for token in _words(said)]}
        return choice


def _one_each(faults: Iterable[Fault | None]) -> Callable[[dict[str, Any]], Fault | None]:
    waiting = iter(faults)
    return lambda body: next(waiting, None)


def _words(text: str) -> list[str]:
    return [word if place == 0 else f" {word}" for place, word in enumerate(text.split(" "))]


def _half(token: str, top: int) -> dict[str, Any]:
    half = -0.6931471805599453
    others = [{"token": token, "logprob": half}, {"token": "?", "logprob": half}]
    return {"token": token, "logprob": half, "top_logprobs": others[:top]}


def _usage(body: dict[str, Any], choice: dict[str, Any]) -> dict[str, int]:
    prompt = sum(len(json.dumps(message["content"]).split()) for message in body["messages"])
    completion = len((choice["message"].get("content") or "").split())
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, fake: FakeChatServer) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.fake = fake

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: clients that give up are what these tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # the small pieces of a stream must not wait for each other

    @property
    def _fake(self) -> FakeChatServer:
        return cast("_Listener", self.server).fake

    def log_message(self, format: str, *args: Any) -> None:
        """Keep the test's output clean."""

    def do_POST(self) -> None:
        fake = self._fake
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with fake._receive(body) as fault:
            if fake.key is not None and self.headers.get("Authorization") != f"Bearer {fake.key}":
                fault = Fault.status(401, f"Incorrect API key provided: {self.headers.get('Authorization')}")
            elif self.path != "/v1/chat/completions":
                fault = Fault.status(404, f"no route {self.path}")
            if fault is not None and fault.kind == "slow":
                fake._closing.wait(fault.seconds)
            if fault is not None and fault.kind == "drop":
                self._hang_up()
            elif fault is not None and (fault.kind == "body" or (fault.kind == "malformed" and not body.get("stream"))):
                self._send(fault.code, fault.body.encode(), "application/json", fault.headers)
            elif body.get("stream"):
                self._stream(body, fault)
            else:
                self._whole(body, fault)

    def _whole(self, body: dict[str, Any], fault: Fault | None) -> None:
        choice = self._fake._choice(body)
        data = {"object": "chat.completion", "model": body["model"], "choices": [choice], "usage": _usage(body, choice)}
        self._send(200, json.dumps(data, ensure_ascii=False).encode(), "application/json", {}, fault)

    def _stream(self, body: dict[str, Any], fault: Fault | None) -> None:
        pieces = list(_chunks(body, self._fake._choice(body)))
        if fault is not None and fault.kind == "malformed":
            pieces[1] = '{"choices": [{"del'
        data = "".join(f": alive\n\ndata: {piece}\n\n" for piece in pieces).encode()
        self._send(200, data, "text/event-stream", {}, fault)

    def _send(self, code: int, data: bytes, media: str, headers: Mapping[str, str], fault: Fault | None = None) -> None:
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", media)
        if media == "text/event-stream":  # ends where the connection does, so a cut shows in the content only
            self.send_header("Connection", "close")
            self.close_connection = True
        else:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if fault is not None and fault.kind == "cut":
            self.wfile.write(data[: len(data) // 2])
            self._hang_up()
        elif fault is not None and fault.kind == "trickle":
            for byte in data:
                self.wfile.write(bytes([byte]))
                self._fake._closing.wait(fault.seconds)
        else:
            self.wfile.write(data)

    def _hang_up(self) -> None:
        self.close_connection = True
        self.wfile.flush()
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)


def _chunks(body: dict[str, Any], choice: dict[str, Any]) -> Iterator[str]:
    """Cut a choice into the pieces of a stream: role, words, tool calls in two halves, end, usage."""

    def chunk(delta: dict[str, Any], **more: Any) -> str:
        piece = {"index": 0, "delta": delta, "finish_reason": None, **more}
        return json.dumps({"model": body["model"], "choices": [piece]}, ensure_ascii=False)

    message = choice["message"]
    yield chunk({"role": "assistant", "content": ""})
    logprobs = (choice.get("logprobs") or {}).get("content")
    for place, word in enumerate(_words(message["content"]) if message.get("content") else ()):
        yield chunk({"content": word}, **({"logprobs": {"content": [logprobs[place]]}} if logprobs else {}))
    for index, call in enumerate(message.get("tool_calls") or ()):
        name, written = call["function"]["name"], call["function"]["arguments"]
        head = {"index": index, "id": call["id"], "function": {"name": name, "arguments": written[:3]}}
        yield chunk({"tool_calls": [head]})
        yield chunk({"tool_calls": [{"index": index, "function": {"arguments": written[3:]}}]})
    yield chunk({}, finish_reason=choice["finish_reason"])
    if (body.get("stream_options") or {}).get("include_usage"):
        yield json.dumps({"model": body["model"], "choices": [], "usage": _usage(body, choice)})
    yield "[DONE]"
