"""The OpenAI wire format: completions and streamed pieces of them in, `Reply` out, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from papers_shared._json import loads
from papers_shared.chat.protocol import Reply, TokenLogprob, ToolCall, Usage


class MalformedAnswer(ValueError):
    """What came is not a chat completion."""


@dataclass(frozen=True)
class Answer:
    """What a model gives the engine: ``raw`` has ``choice``, ``usage`` and ``model`` and is what caches keep."""

    raw: Mapping[str, Any]
    retries: int = 0
    cached: bool = False


def answer_parts(completion: Any) -> dict[str, Any]:
    """Take the parts that are kept from a chat completion.

    Raises
    ------
    MalformedAnswer
        It has no choice with a message.
    """
    choices = completion.get("choices") if isinstance(completion, dict) else None
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise MalformedAnswer(f"an answer without choices: {json.dumps(completion)[:120]}")
    if not isinstance(choices[0].get("message"), dict):
        raise MalformedAnswer(f"a choice without a message: {json.dumps(choices[0])[:120]}")
    usage = completion.get("usage")
    return {
        "choice": choices[0],
        "usage": usage if isinstance(usage, dict) else {},
        "model": str(completion.get("model") or ""),
    }


def parse_reply(answer: Answer, keep_raw: bool = False) -> Reply:
    """Read a reply out of an answer.

    Raises
    ------
    MalformedAnswer
        A field has a type that the format does not allow.
    """
    choice, counts = answer.raw["choice"], answer.raw["usage"]
    try:
        message = choice["message"]
        prompt, completion = int(counts.get("prompt_tokens") or 0), int(counts.get("completion_tokens") or 0)
        spent = Usage(cache_hits=1) if answer.cached else Usage(1, 0, answer.retries, 0, prompt, completion)
        return Reply(
            text=_text(message.get("content")),
            finish_reason=choice.get("finish_reason"),
            logprobs=_logprobs(choice.get("logprobs")),
            tool_calls=tuple(_tool_call(call) for call in message.get("tool_calls") or ()),
            reasoning=message.get("reasoning_content") or message.get("reasoning") or None,
            model=answer.raw["model"],
            prompt_tokens=prompt,
            completion_tokens=completion,
            cached=answer.cached,
            usage=spent,
            raw=choice if keep_raw else None,
        )
    except (TypeError, AttributeError, KeyError, ValueError, OverflowError) as error:
        raise MalformedAnswer(f"an answer out of the chat format: {json.dumps(choice)[:120]}") from error


def _text(content: Any) -> str:
    if content is None:
        return ""
    if isinstance(content, list):
        return "".join(part["text"] for part in content if part.get("type", "text") == "text")
    if not isinstance(content, str):
        raise TypeError("content is neither text nor parts")
    return content


def _logprobs(logprobs: Any) -> tuple[TokenLogprob, ...] | None:
    if not logprobs or logprobs.get("content") is None:
        return None
    tokens = []
    for item in logprobs["content"]:
        top: dict[str, float] = {}
        for other in item.get("top_logprobs") or ():
            # Two byte-level tokens can print alike; the list is sorted, so the first is the likelier.
            top.setdefault(other["token"], _logprob(other["logprob"]))
        tokens.append(TokenLogprob(item["token"], _logprob(item["logprob"]), top))
    return tuple(tokens)


def _logprob(value: Any) -> float:
    # Strict JSON has no -Infinity: some servers, and our own cache, write null for a token that cannot come.
    return float("-inf") if value is None else float(value)


def _tool_call(call: Mapping[str, Any]) -> ToolCall:
    function = call["function"]
    written = function.get("arguments") or "{}"
    if isinstance(written, dict):  # Ollama's own form
        written = json.dumps(written)
    try:
        arguments = loads(written)
    except ValueError:
        arguments = None
    return ToolCall(
        id=str(call.get("id") or ""),
        name=function["name"],
        arguments=arguments if isinstance(arguments, dict) else None,
        arguments_text=written,
    )


def raw_from_reply(reply: Reply) -> dict[str, Any]:
    """Return a reply in the form that `parse_reply` reads."""
    choice: dict[str, Any] = {"finish_reason": reply.finish_reason, "message": reply.as_message()}
    if reply.reasoning is not None:
        choice["message"]["reasoning_content"] = reply.reasoning
    if reply.logprobs is not None:
        choice["logprobs"] = {
            "content": [
                {
                    "token": item.token,
                    "logprob": item.logprob,
                    "top_logprobs": [
                        {"token": token, "logprob": value}
                        for token, value in sorted(item.top.items(), key=lambda pair: -pair[1])
                    ],
                }
                for item in reply.logprobs
            ]
        }
    usage = {"prompt_tokens": reply.prompt_tokens, "completion_tokens": reply.completion_tokens}
    return {"choice": choice, "usage": usage, "model": reply.model}


class StreamedAnswer:
    """Puts the chunks of one streamed completion together."""

    def __init__(self) -> None:
        self._message: dict[str, Any] = {"role": "assistant", "content": ""}
        self._calls: dict[int, dict[str, Any]] = {}
        self._logprobs: list[Any] | None = None
        self._finish_reason: str | None = None
        self._usage: dict[str, Any] | None = None
        self._model = ""
        self.begun = False  # whether any piece of the answer has come

    @property
    def finished(self) -> bool:
        """Whether the model has said why it stopped."""
        return self._finish_reason is not None

    def add(self, chunk: Any) -> None:
        """Add one chunk.

        Raises
        ------
        MalformedAnswer
            It is not a chunk of a chat completion.
        """
        try:
            self._usage = chunk.get("usage") or self._usage
            self._model = chunk.get("model") or self._model
            for choice in chunk.get("choices") or ():
                self._add_choice(choice)
        except (TypeError, AttributeError, KeyError, ValueError) as error:
            raise MalformedAnswer(f"a stream chunk out of the chat format: {json.dumps(chunk)[:120]}") from error

    def _add_choice(self, choice: Mapping[str, Any]) -> None:
        self.begun = True
        delta = choice.get("delta") or {}
        for name in ("content", "reasoning_content", "reasoning"):
            if delta.get(name):
                self._message[name] = self._message.get(name, "") + delta[name]
        for place, piece in enumerate(delta.get("tool_calls") or ()):
            index = piece.get("index")
            call = self._calls.setdefault(
                place if index is None else int(index), {"id": "", "name": "", "arguments": ""}
            )
            function = piece.get("function") or {}
            call["id"] = piece.get("id") or call["id"]
            call["name"] = function.get("name") or call["name"]
            call["arguments"] += function.get("arguments") or ""
        if choice.get("logprobs"):
            self._logprobs = (self._logprobs or []) + (choice["logprobs"].get("content") or [])
        self._finish_reason = choice.get("finish_reason") or self._finish_reason

    def completion(self) -> dict[str, Any]:
        """Return the completion that the same request without streaming would have given."""
        message = dict(self._message)
        if self._calls:
            message["tool_calls"] = [
                {"id": c["id"], "type": "function", "function": {"name": c["name"], "arguments": c["arguments"]}}
                for _, c in sorted(self._calls.items())
            ]
        choice: dict[str, Any] = {"finish_reason": self._finish_reason, "message": message}
        if self._logprobs is not None:
            choice["logprobs"] = {"content": self._logprobs}
        return {"choices": [choice], "usage": self._usage, "model": self._model}
