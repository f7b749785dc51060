"""Models without a network: recorded answers, the recorder, and a Python function."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from papers_shared.artifacts import append_jsonl, read_jsonl
from papers_shared.chat.answers import Answer, answer_parts, raw_from_reply
from papers_shared.chat.engine import Chat
from papers_shared.chat.messages import canonical, request_key
from papers_shared.chat.protocol import ChatError, ChatModel, Reply, Request
from papers_shared.errors import InputError


def record(model: ChatModel, path: str | os.PathLike[str]) -> Chat:
    """Wrap a model so that every new answer is also appended to a JSON Lines file, for `replay`.

    A line holds the model, messages, options, sample number and answer; long data URLs are kept as their SHA-256 only.
    What the file already has is not written twice.

    Parameters
    ----------
    model
        Answers.
    path
        The file; made if missing. Its folder must exist.

    Raises
    ------
    InputError
        The file exists and is not a recording.
    """
    known = set(_read_recording(path, None)[1]) if Path(path).exists() else set()
    lock = threading.Lock()

    def ask(request: Request, key: str) -> Answer:
        reply = model.chat(request.messages, sample=request.sample, **request.options)
        raw = raw_from_reply(reply)
        with lock:
            if key not in known:
                known.add(key)
                row = {
                    "model": model.model,
                    "messages": canonical(request.messages),
                    "options": canonical(request.options),
                    "sample": request.sample,
                }
                append_jsonl(
                    path, row | {"reported_model": raw["model"], "choice": raw["choice"], "usage": raw["usage"]}
                )
        return Answer(raw, reply.usage.retries, reply.cached)

    # The inner model's defaults stay its own: they are not written, so that a replay is asked in the same words.
    return Chat(ask, model=model.model, identity="", concurrency=getattr(model, "concurrency", 1))


def replay(path: str | os.PathLike[str], *, model: str | None = None) -> Chat:
    """Return a model that gives recorded answers and nothing else.

    Parameters
    ----------
    path
        A file made by `record`.
    model
        Whose answers, if the file holds those of several models.

    Raises
    ------
    InputError
        The file is missing or not a recording, or holds several models and none is named.

    Examples
    --------
    >>> model = record(openai_chat(url, "qwen"), "answers.jsonl")   # once, with the server
    >>> model = replay("answers.jsonl")                             # from then on
    """
    name, answers, rows = _read_recording(path, model)

    def ask(request: Request, key: str) -> Answer:
        if key not in answers:
            raise _unmatched(os.fspath(path), request, rows)
        return Answer(answers[key])

    return Chat(ask, model=name, identity="")


def _read_recording(
    path: str | os.PathLike[str], model: str | None
) -> tuple[str, dict[str, dict[str, Any]], list[Mapping[str, Any]]]:
    """Return the model's name, the answers by key, and the rows."""
    answers: dict[str, dict[str, Any]] = {}
    rows = []
    for number, row in enumerate(read_jsonl(path), 1):
        try:
            if model is not None and row["model"] != model:
                continue
            request = Request(row["messages"], row["options"], row["sample"])
            parts = {"choices": [row["choice"]], "usage": row["usage"], "model": row["reported_model"]}
            answers[request_key("", request)] = answer_parts(parts)
            rows.append(row)
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{os.fspath(path)}: answer {number} is not a recorded one: {error}") from error
    names = sorted({row["model"] for row in rows})
    if len(names) > 1:
        raise InputError(f"{os.fspath(path)} holds several models: {', '.join(names)}", "name one with model=")
    if model is not None and not names:
        raise InputError(f"{os.fspath(path)} holds no answer of {model!r}")
    return names[0] if names else "replay", answers, rows


def _unmatched(path: str, request: Request, rows: list[Mapping[str, Any]]) -> ChatError:
    """Name the request, and how it differs from one that was recorded with the same messages."""
    messages, options = canonical(request.messages), canonical(request.options)
    last = messages[-1].get("content")
    shown = " ".join((last if isinstance(last, str) else json.dumps(last)).split())
    about = f"{shown[:100]!r} with {json.dumps(options)[:200]}, sample {request.sample}"
    alike = [row for row in rows if row["messages"] == messages]
    if not alike:
        hint = "the messages were never recorded; record them with record(model, path)"
    elif any(row["options"] == options for row in alike):
        hint = f"recorded are the samples {sorted(row['sample'] for row in alike if row['options'] == options)}"
    else:
        hint = f"the same messages were recorded with {json.dumps(alike[0]['options'])[:200]}"
    return ChatError(f"{path} has no answer to {about}", hint, kind="not_recorded")


def function_chat(
    answer: Callable[[Request], str | Reply],
    *,
    model: str = "function",
    cache: str | os.PathLike[str] | None = None,
    concurrency: int = 1,
    defaults: Mapping[str, Any] | None = None,
) -> Chat:
    """Return a model that answers by calling a Python function: rules, a simulation, a model of one's own.

    Parameters
    ----------
    answer
        From a `Request` to the text or a whole `Reply`; may raise `ChatError`.
    model
        Its name.
    cache
        Folder for answers; then ``model`` must name the function and all that it depends on.
    concurrency
        Most calls at once, in threads.
    defaults
        Options for every request.

    Examples
    --------
    >>> parrot = function_chat(lambda request: request.messages[-1]["content"])
    >>> parrot.chat("Hello").text
    'Hello'
    """

    def ask(request: Request, key: str) -> Answer:
        said = answer(request)
        reply = said if isinstance(said, Reply) else Reply(text=said, finish_reason="stop", model=model)
        return Answer(raw_from_reply(reply))

    return Chat(ask, model=model, identity=f"function:{model}", cache=cache, concurrency=concurrency, defaults=defaults)
