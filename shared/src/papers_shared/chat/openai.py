"""Any server that speaks the OpenAI chat protocol: vLLM, llama.cpp, Ollama, or a hosted one."""

from __future__ import annotations

import contextlib
import functools
import ipaddress
import json
import os
import re
import socket
import ssl
import threading
import time
import weakref
from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from papers_shared._json import dumps_line, loads
from papers_shared.chat.answers import Answer, MalformedAnswer, StreamedAnswer, answer_parts, parse_reply
from papers_shared.chat.engine import Chat
from papers_shared.chat.protocol import ChatError, Request
from papers_shared.chat.retry import Retry, TransientError, retry_after
from papers_shared.errors import InputError

_CONTEXT = re.compile(r"context.?(length|size|window)|exceeds?_context|maximum context|too many tokens", re.IGNORECASE)
_PASSING = frozenset({408, 409, 425, 500, 502, 503, 504, 520, 521, 522, 523, 524, 529})
_CONNECT_SECONDS = 10.0
_SHORTEST_SECRET = 16
"""Shorter keys are placeholders such as EMPTY or none, and may be words of an answer."""


def openai_chat(
    base_url: str,
    model: str,
    *,
    api_key: str | None = None,
    cache: str | os.PathLike[str] | None = None,
    concurrency: int = 8,
    timeout: float = 120.0,
    total_timeout: float = 600.0,
    max_retries: int = 5,
    backoff: float = 0.5,
    max_wait: float = 60.0,
    stream: bool = False,
    stall: float | None = None,
    identity: str | None = None,
    defaults: Mapping[str, Any] | None = None,
    keep_raw: bool = False,
    seed: int = 0,
) -> Chat:
    """Return a model behind an OpenAI-compatible server.

    Asked again, with exponential backoff: 429, 5xx, no connection, time-outs, cut answers, answers that are not chat
    completions. ``Retry-After`` is honoured, by all threads. Final: a wrong key, an unknown model, a request that the
    server refuses or that is too long; the error carries the server's own words.

    Parameters
    ----------
    base_url
        As for the OpenAI client, usually ending in ``/v1``.
    model
        The name that the server knows it by.
    api_key
        By default the environment variable ``OPENAI_API_KEY``, if set. Sent only to ``base_url``; never logged, shown
        or stored.
    cache
        Folder for answers, made if missing; a second run asks only what is not there.
    concurrency
        Most requests open at once.
    timeout
        Seconds for one attempt, also where the answer trickles in.
    total_timeout
        Seconds for one request with all its retries and waits.
    max_retries
        Retries after the first attempt.
    backoff, max_wait
        First wait and longest wait between attempts, in seconds; the longest also caps ``Retry-After``.
    stream
        Have answers streamed: a server that has died is noticed after ``stall`` seconds, and proxies that cut long
        silent requests let them through.
    stall
        With ``stream``, seconds without a new piece after which the attempt is given up; by default ``timeout``.
    identity
        Names the model in the cache's keys, by default ``base_url#model``. Set it to keep a cache when the same
        server moves to another port.
    defaults
        Options for every request, for example ``{"temperature": 0, "max_tokens": 256}``.
    keep_raw
        Keep the server's own choice in ``Reply.raw``.
    seed
        For the jitter of the backoff. The seed of the sampling is an option of the request.

    Returns
    -------
    Chat
        Use it as a context manager, or close it, to close its connections early.

    Raises
    ------
    InputError
        httpx is not installed, or ``base_url`` is not a http(s) address or holds a password.

    Examples
    --------
    >>> model = openai_chat("http://localhost:8000/v1", "qwen", cache="runs/answers")
    >>> model.chat("Name a prime above 100.", temperature=0, max_tokens=20).text
    """
    try:
        import httpx
    except ImportError as error:
        raise InputError("asking a chat server needs httpx", 'pip install "papers-shared[chat]"') from error
    url = _completions_url(base_url)
    key = os.environ.get("OPENAI_API_KEY", "") if api_key is None else api_key
    key = key.strip()
    if not (key.isascii() and key.isprintable()):
        raise InputError("the API key holds characters that no key has", "check OPENAI_API_KEY")
    client = httpx.Client(
        headers={"Authorization": f"Bearer {key}"} if key else {},
        limits=httpx.Limits(max_connections=concurrency, max_keepalive_connections=concurrency),
        verify=_tls(),
        trust_env=not _is_loopback(url),  # a proxy from the environment cannot reach this machine's own server
    )
    retry = Retry(max_retries, timeout, total_timeout, backoff, max_wait, seed)
    server = _Server(client, url, model, key, retry, stream, stall or timeout)
    chat = Chat(
        server.ask,
        model=model,
        identity=identity or f"{_shown(url).removesuffix('/chat/completions')}#{model}",
        cache=cache,
        concurrency=concurrency,
        defaults=defaults,
        keep_raw=keep_raw,
        close=client.close,
    )
    weakref.finalize(chat, client.close)
    return chat


@functools.cache
def _tls() -> ssl.SSLContext:
    """Make the TLS settings once: reading the certificates takes longer than a call to a local server."""
    import httpx

    return httpx.create_ssl_context()


def _completions_url(base_url: str) -> str:
    parts = urlsplit(base_url.strip())
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InputError(f"{base_url!r} is not a server's address", "it looks like http://localhost:8000/v1")
    if parts.username or parts.password:
        raise InputError("a server's address must not hold a password", "put the key into OPENAI_API_KEY")
    path = parts.path.rstrip("/").removesuffix("/chat/completions") + "/chat/completions"
    return urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))


def _shown(url: str) -> str:
    return url.partition("?")[0]


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


class _Server:
    """One server and model: sends a request, reads the answer, tells passing errors from final ones."""

    def __init__(self, client: Any, url: str, model: str, key: str, retry: Retry, stream: bool, stall: float) -> None:
        self._client = client
        self._url = url
        self._model = model
        self._key = key
        self._retry = retry
        self._stream = stream
        self._stall = stall

    def ask(self, request: Request, key: str) -> Answer:
        body = request.body(self._model)
        if self._stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        content = dumps_line(body).encode()
        raw, retries = self._retry.run(lambda seconds: self._attempt(content, seconds), key)
        return Answer(raw, retries)

    def _attempt(self, content: bytes, seconds: float) -> dict[str, Any]:
        import httpx

        deadline = time.monotonic() + seconds
        connect = min(_CONNECT_SECONDS, seconds)
        silence = min(self._stall, seconds) if self._stream else seconds
        limits = httpx.Timeout(connect=connect, read=silence, write=seconds, pool=seconds)
        headers = {"Content-Type": "application/json"}
        cut = _Cut()
        try:
            with (
                self._client.stream("POST", self._url, content=content, headers=headers, timeout=limits) as response,
                cut.at(deadline, response),
            ):
                raw = self._read(response)
                parse_reply(Answer(raw))  # an answer that cannot be read must be asked for again, not stored
                return raw
        except httpx.TimeoutException as error:
            raise self._timed_out(seconds if type(error) is not httpx.ConnectTimeout else connect) from error
        except (httpx.TransportError, httpx.DecodingError, MalformedAnswer, TransientError) as error:
            if cut.done:
                raise self._timed_out(seconds) from error
            if isinstance(error, TransientError):
                raise
            if isinstance(error, MalformedAnswer | httpx.DecodingError):
                raise self._passing(f"sent {error}", "malformed") from error
            what = "cannot be reached" if isinstance(error, httpx.ConnectError) else "broke off"
            raise self._passing(f"{what} ({error})", "unavailable") from error

    def _read(self, response: Any) -> dict[str, Any]:
        wait = response.headers.get("retry-after")
        if response.status_code != 200:
            raise self._refusal(response.status_code, self._decode(response.read()), wait)
        if response.headers.get("content-type", "").startswith("text/event-stream"):
            return answer_parts(self._read_stream(_lines(response.iter_bytes())))
        text = self._decode(response.read())
        try:
            completion = loads(text)
        except ValueError as error:
            raise MalformedAnswer(f"what is not JSON: {text[:80]!r}") from error
        self._check_error(completion)
        return answer_parts(completion)

    def _read_stream(self, lines: Iterable[bytes]) -> dict[str, Any]:
        answer, done = StreamedAnswer(), False
        for line in lines:
            if not line.startswith(b"data:"):  # comments that keep the connection alive, event names
                continue
            data = self._decode(line[5:]).strip()
            if done := data == "[DONE]":
                break
            try:
                chunk = loads(data)
            except ValueError as error:
                raise MalformedAnswer(f"a stream piece that is not JSON: {data[:80]!r}") from error
            self._check_error(chunk)
            answer.add(chunk)
        if not (answer.finished or (done and answer.begun)):
            raise self._passing("cut the stream before its end", "unavailable")
        return answer.completion()

    def _decode(self, data: bytes) -> str:
        """Decode, and take the key out: some servers repeat it in their errors, and it must not be shown or stored."""
        text = data.decode("utf-8", "replace")
        return text.replace(self._key, "***") if len(self._key) >= _SHORTEST_SECRET else text

    def _check_error(self, document: Any) -> None:
        """Servers behind a proxy, and streams, report errors inside a 200 answer."""
        if isinstance(document, dict) and document.get("error"):
            error = document["error"]
            code = error.get("code") if isinstance(error, dict) else None
            status = code if isinstance(code, int) and 400 <= code < 600 else 500
            raise self._refusal(status, json.dumps(document), None)

    def _refusal(self, status: int, text: str, wait: str | None) -> ChatError | TransientError:
        said, code = _server_words(text)
        message = f"{_shown(self._url)} answered {status}: {said}"
        if status == 429 and code == "insufficient_quota":
            return ChatError(message, "top up the account, or use another key", kind="quota", status=status)
        if status == 429:
            return self._passing(f"answered 429: {said}", "rate_limit", status, retry_after(wait))
        if _CONTEXT.search(f"{code} {said}"):
            hint = "shorten the messages or lower max_tokens"
            return ChatError(message, hint, kind="context_length", status=status)
        if status in _PASSING:
            return self._passing(f"answered {status}: {said}", "unavailable", status, retry_after(wait))
        if status in (401, 403):
            hint = "check the API key" if self._key else "set OPENAI_API_KEY"
            return ChatError(message, hint, kind="auth", status=status)
        if status in (404, 405) or 300 <= status < 400:
            hint = f"is {self._model!r} the model's name there, and does base_url end in /v1?"
            return ChatError(message, hint, kind="not_found", status=status)
        return ChatError(message, kind="bad_request", status=status)

    def _timed_out(self, seconds: float) -> TransientError:
        return self._passing(f"gave no whole answer in {seconds:.3g} s", "timeout")

    def _passing(self, what: str, kind: str, status: int | None = None, wait: float | None = None) -> TransientError:
        return TransientError(f"{_shown(self._url)} {what}", kind=kind, status=status, wait=wait)


def _lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Cut a byte stream at newlines only: `str.splitlines` would also cut at U+2028, which may stand in JSON text."""
    rest = b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        yield from lines
    yield rest


def _server_words(text: str) -> tuple[str, str]:
    """Return the message and the code of an error body, in any of the shapes that servers use."""
    try:
        document = loads(text)
    except ValueError:
        document = None
    code = ""
    said: Any = None
    if isinstance(document, dict):
        error = document.get("error")
        if isinstance(error, dict):
            said = error.get("message")
            code = f"{error.get('code') or ''} {error.get('type') or ''}"
            if error.get("code") == "insufficient_quota" or error.get("type") == "insufficient_quota":
                code = "insufficient_quota"
        else:
            said = error or document.get("message") or document.get("detail")
    words = said if isinstance(said, str) else json.dumps(said) if said else text
    return " ".join(words.split())[:400] or "no reason given", code


class _Cut:
    """Ends an attempt at its deadline although bytes keep coming: httpx limits each read, not their sum."""

    def __init__(self) -> None:
        self.done = False

    @contextlib.contextmanager
    def at(self, deadline: float, response: Any) -> Generator[None]:
        stream = response.extensions["network_stream"]
        timer = threading.Timer(deadline - time.monotonic(), self._cut, [stream.get_extra_info("socket")])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _cut(self, connection: socket.socket) -> None:
        self.done = True
        with contextlib.suppress(OSError):  # closed meanwhile
            # The plain socket's method also for TLS: the reading thread is still inside the TLS object.
            socket.socket.shutdown(connection, socket.SHUT_RDWR)
