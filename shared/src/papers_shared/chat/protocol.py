"""What is asked of a language model and what comes back, whichever model answers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Protocol, runtime_checkable

from papers_shared._json import loads
from papers_shared.artifacts import jsonable
from papers_shared.errors import InputError

Message = Mapping[str, Any]
Messages = str | Sequence[Message]

TRANSIENT = frozenset({"rate_limit", "unavailable", "timeout", "malformed", "skipped"})
"""Kinds of failure that may succeed when the same request is asked again later."""

_OPENING = re.compile(r"[\[{]+")
_RESERVED = frozenset({"n", "stream", "stream_options", "model", "messages", "sample"})


class ChatError(InputError):
    """A request that got no answer, after all retries.

    Attributes
    ----------
    kind : str
        Final: ``"auth"``, ``"quota"``, ``"not_found"``, ``"context_length"``, ``"bad_request"``, ``"not_recorded"``.
        Worth asking again later: ``"rate_limit"``, ``"unavailable"``, ``"timeout"``, ``"malformed"``, ``"skipped"``.
    status : int or None
        The HTTP status, if the server answered with one.
    attempts : int
        How often it was asked.
    """

    def __init__(
        self,
        message: str,
        hint: str | None = None,
        *,
        kind: str = "bad_request",
        status: int | None = None,
        attempts: int = 1,
    ) -> None:
        super().__init__(message, hint)
        self.kind = kind
        self.status = status
        self.attempts = attempts

    @property
    def transient(self) -> bool:
        """Whether asking again later may succeed."""
        return self.kind in TRANSIENT


@dataclass(frozen=True)
class Usage:
    """What was spent; adds up, and subtracts for the part between two moments.

    ``calls + failures + retries`` is the number of requests that a server saw. Tokens are those of new answers: an
    answer from the cache counts as a cache hit and costs nothing.

    Examples
    --------
    >>> before = model.usage
    >>> replies = model.chat_many(requests)
    >>> (model.usage - before).completion_tokens
    """

    calls: int = 0
    cache_hits: int = 0
    retries: int = 0
    failures: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def __sub__(self, other: Usage) -> Usage:
        return Usage(*(getattr(self, f.name) - getattr(other, f.name) for f in fields(self)))

    def __radd__(self, other: int) -> Usage:
        return self  # the 0 that sum() starts from

    def cost(self, prompt_price: float, completion_price: float) -> float:
        """Return the price of the tokens; prices are per million tokens."""
        return (self.prompt_tokens * prompt_price + self.completion_tokens * completion_price) / 1e6


@dataclass(frozen=True)
class TokenLogprob:
    """One generated token, its natural-log probability, and the likeliest alternatives (token to log-probability)."""

    token: str
    logprob: float
    top: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class ToolCall:
    """A call that the model wants made.

    Attributes
    ----------
    id : str
        Names the call in the tool's answer (``{"role": "tool", "tool_call_id": id, "content": ...}``).
    name : str
        The tool.
    arguments : dict or None
        None if what the model wrote is not a JSON object.
    arguments_text : str
        What the model wrote.
    """

    id: str
    name: str
    arguments: Mapping[str, Any] | None
    arguments_text: str


@dataclass(frozen=True)
class Reply:
    """One answer.

    Attributes
    ----------
    text : str
        What the model said; empty if it only calls tools.
    finish_reason : str or None
        ``"stop"``, ``"length"``, ``"tool_calls"``, ``"content_filter"``, ...
    logprobs : tuple of TokenLogprob or None
        One per generated token, if asked for with ``logprobs=True`` and the server has them.
    tool_calls : tuple of ToolCall
        Empty if there are none.
    reasoning : str or None
        The thinking part, for servers that keep it apart from the text.
    model : str
        The model's name as the server gives it.
    prompt_tokens, completion_tokens : int
        The size of this answer as counted by the server, whether it came from the cache or not; 0 if it does not count.
    cached : bool
        Whether it was answered without asking.
    usage : Usage
        What this answer cost now. Over all replies and failures it sums to the model's own ``usage``.
    raw : dict or None
        The server's choice as it came, with ``keep_raw=True``.
    """

    text: str
    finish_reason: str | None = None
    logprobs: tuple[TokenLogprob, ...] | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    reasoning: str | None = None
    model: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached: bool = False
    usage: Usage = Usage()
    raw: Mapping[str, Any] | None = None

    @property
    def answer(self) -> str:
        """The text after the last ``</think>``, stripped."""
        return self.text.rpartition("</think>")[2].strip()

    def json(self) -> Any:
        """Return the first JSON object or array in the answer, with or without a code fence or words around it.

        Raises
        ------
        ValueError
            There is none, or it is cut off.
        """
        answer = self.answer
        try:
            return loads(answer)
        except ValueError:
            pass
        decoder, opening = json.JSONDecoder(), _OPENING.search(answer)
        while opening:
            try:
                return decoder.raw_decode(answer, opening.start())[0]
            except ValueError:  # a brace in prose; the object may come later
                start = opening.start() + 1
            except RecursionError:  # a model that went on and on with brackets
                start = opening.end()
            opening = _OPENING.search(answer, start)
        raise ValueError(f"no JSON in the answer of {self.model or 'the model'}: {answer[:120]!r}")

    def as_message(self) -> dict[str, Any]:
        """Return the answer as a message to append to the conversation."""
        message: dict[str, Any] = {"role": "assistant", "content": self.text}
        if self.tool_calls:
            message["tool_calls"] = [
                {"id": c.id, "type": "function", "function": {"name": c.name, "arguments": c.arguments_text}}
                for c in self.tool_calls
            ]
        return message


@dataclass(frozen=True)
class Failure:
    """Stands in `chat_many`'s list where a request got no answer; never stored, so the next run asks again."""

    error: ChatError
    usage: Usage = Usage()

    @property
    def kind(self) -> str:
        """The kind of failure, see `ChatError`."""
        return self.error.kind

    @property
    def transient(self) -> bool:
        """Whether asking again later may succeed."""
        return self.error.transient

    def __str__(self) -> str:
        return str(self.error)


@dataclass(frozen=True)
class Request:
    """Messages and options of one call.

    Parameters
    ----------
    messages
        OpenAI chat messages, or a string for one user message. Content may hold image parts, see `image_part`.
    options
        Fields of the OpenAI request: ``temperature``, ``top_p``, ``max_tokens``, ``seed``, ``stop``, ``logprobs``,
        ``top_logprobs``, ``tools``, ``tool_choice``, ``response_format``, and any other that the server knows.
        None means not given.
    sample
        Which independent draw this is. With a ``seed``, draw i is asked with ``seed + i``.

    Raises
    ------
    InputError
        No messages, a message without a role, or an option that the model sets itself.
    """

    messages: Messages
    options: Mapping[str, Any] = field(default_factory=dict)
    sample: int = 0

    def __post_init__(self) -> None:
        messages = [{"role": "user", "content": self.messages}] if isinstance(self.messages, str) else self.messages
        try:
            messages = jsonable(list(messages))
            options = {name: jsonable(value) for name, value in self.options.items() if value is not None}
        except (TypeError, ValueError) as error:
            raise InputError(f"a chat request must be JSON: {error}") from error
        if not messages:
            raise InputError("a chat request needs at least one message")
        for number, message in enumerate(messages, 1):
            if not isinstance(message, dict) or not isinstance(message.get("role"), str):
                raise InputError(f"message {number} of a chat request has no role: {message!r:.80}")
        if reserved := sorted(_RESERVED & options.keys()):
            raise InputError(
                f"option {reserved[0]!r} cannot be set", hint="for several answers use sample(messages, n)"
            )
        if self.sample < 0:
            raise InputError(f"sample must be 0 or more, not {self.sample}")
        object.__setattr__(self, "messages", messages)
        object.__setattr__(self, "options", options)

    def body(self, model: str) -> dict[str, Any]:
        """Return the request as the server gets it."""
        body: dict[str, Any] = {"model": model, "messages": self.messages, **self.options}
        if "seed" in body:
            body["seed"] += self.sample
        return body


@runtime_checkable
class ChatModel(Protocol):
    """What every model here can do; write your own with `function_chat`."""

    @property
    def model(self) -> str:
        """The model's name."""

    @property
    def usage(self) -> Usage:
        """What has been spent so far."""

    def chat(self, messages: Messages, *, sample: int = 0, **options: Any) -> Reply:
        """Answer one request; raises `ChatError`."""

    def sample(self, messages: Messages, n: int, **options: Any) -> list[Reply]:
        """Draw ``n`` independent answers; raises `ChatError`."""

    def chat_many(
        self, requests: Iterable[Request | Messages], *, progress: str | None = None
    ) -> list[Reply | Failure]:
        """Answer many requests in their order."""

    def as_completed(self, requests: Iterable[Request | Messages]) -> Iterator[tuple[int, Reply | Failure]]:
        """Yield the place of each request and its outcome as soon as it is known."""
