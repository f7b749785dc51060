"""The part that all models share: cache, concurrency, counting, many requests at once."""

from __future__ import annotations

import os
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from papers_shared.chat.answers import Answer, MalformedAnswer, parse_reply
from papers_shared.chat.cache import ReplyCache
from papers_shared.chat.messages import request_key
from papers_shared.chat.protocol import ChatError, Failure, Messages, Reply, Request, Usage

Ask = Callable[[Request, str], Answer]

_HOPELESS = frozenset({"auth", "quota", "not_found"})
"""Kinds of error that every other request would meet as well."""


class Chat:
    """A `ChatModel` around one function that asks; made by `openai_chat`, `local_chat`, `replay` and the others.

    Parameters
    ----------
    ask
        Takes a request and its key, returns the answer or raises `ChatError`. Called from several threads.
    model
        The model's name.
    identity
        Names the model in the keys of the cache: where it is served and what it is called.
    cache
        Folder for answers; None keeps none.
    concurrency
        Most requests open at once, over all threads that use this model.
    defaults
        Options of every request that does not set them itself.
    keep_raw
        Keep the server's own choice in ``Reply.raw``.
    close
        Releases what ``ask`` holds.
    """

    def __init__(
        self,
        ask: Ask,
        *,
        model: str,
        identity: str,
        cache: str | os.PathLike[str] | None = None,
        concurrency: int = 1,
        defaults: Mapping[str, Any] | None = None,
        keep_raw: bool = False,
        close: Callable[[], None] | None = None,
    ) -> None:
        if concurrency < 1:
            raise ValueError(f"concurrency must be 1 or more, not {concurrency}")
        self.model = model
        self.concurrency = concurrency
        self._ask_function = ask
        self._identity = identity
        self._cache = None if cache is None else ReplyCache(cache)
        self._defaults = dict(defaults or {})
        self._keep_raw = keep_raw
        self._close_function = close
        self._slots = threading.BoundedSemaphore(concurrency)
        self._usage = Usage()
        self._usage_lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<chat model {self.model!r}>"

    def __enter__(self) -> Chat:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close connections; the model cannot be asked afterwards."""
        if self._close_function is not None:
            self._close_function()

    @property
    def usage(self) -> Usage:
        """What has been spent so far, over all threads."""
        with self._usage_lock:
            return self._usage

    def chat(self, messages: Messages, *, sample: int = 0, **options: Any) -> Reply:
        """Answer one request, from the cache if it is there.

        Parameters
        ----------
        messages
            OpenAI chat messages, or a string for one user message.
        sample
            Which independent draw; the same number gives the same answer from the cache.
        **options
            See `Request`.

        Raises
        ------
        ChatError
            No answer after all retries, or the server refused the request.
        """
        request, key = self._prepare(Request(messages, options, sample))
        return self._lookup(key) or self._ask(request, key)

    def sample(self, messages: Messages, n: int, **options: Any) -> list[Reply]:
        """Draw ``n`` independent answers, as ``n`` calls: every server can do that, and each is cached by itself.

        Raises
        ------
        ChatError
            One of them failed; the others are in the cache.
        """
        replies = []
        for outcome in self.chat_many([Request(messages, options, i) for i in range(n)]):
            if isinstance(outcome, Failure):
                raise outcome.error
            replies.append(outcome)
        return replies

    def chat_many(
        self, requests: Iterable[Request | Messages], *, progress: str | None = None
    ) -> list[Reply | Failure]:
        """Answer many requests at once, in their order; with a cache, the same call again asks only what is missing.

        Requests that are equal are asked once (draws differ by ``sample``). After a row of failures that shows that
        the server is down, what is left is not asked and fails as ``"skipped"``.

        Parameters
        ----------
        requests
            `Request` objects, message lists or strings.
        progress
            Show progress and ETA on stderr under this description.

        Raises
        ------
        ChatError
            An error that every request would meet: wrong key, no quota left, unknown model.
        """
        requests = list(requests)
        outcomes = self.as_completed(requests)
        if progress is not None:
            from papers_shared.cli import track

            outcomes = track(outcomes, progress, total=len(requests))
        found = dict(outcomes)
        return [found[place] for place in range(len(requests))]

    def as_completed(self, requests: Iterable[Request | Messages]) -> Iterator[tuple[int, Reply | Failure]]:
        """Yield the place and outcome of each request as soon as it is known, those in the cache first.

        Raises
        ------
        ChatError
            As `chat_many`.
        """
        places: dict[str, list[int]] = {}
        todo: deque[tuple[str, Request]] = deque()
        for place, item in enumerate(requests):
            request, key = self._prepare(item if isinstance(item, Request) else Request(item))
            if key not in places:
                places[key] = []
                todo.append((key, request))
            places[key].append(place)
        missing: deque[tuple[str, Request]] = deque()
        for key, request in todo:
            reply = self._lookup(key)
            if reply is None:
                missing.append((key, request))
            else:
                yield from self._at_all(places[key], reply)
        for key, outcome in self._ask_all(missing):
            yield from self._at_all(places[key], outcome)

    def _prepare(self, request: Request) -> tuple[Request, str]:
        request = replace(request, options={**self._defaults, **request.options})
        return request, request_key(self._identity, request)

    def _lookup(self, key: str) -> Reply | None:
        raw = None if self._cache is None else self._cache.get(key)
        if raw is None:
            return None
        try:
            reply = parse_reply(Answer(raw, cached=True), self._keep_raw)
        except MalformedAnswer:
            return None  # edited by hand; ask again
        self._count(reply.usage)
        return reply

    def _ask(self, request: Request, key: str) -> Reply:
        try:
            with self._slots:
                answer = self._ask_function(request, key)
            reply = parse_reply(answer, self._keep_raw)
        except MalformedAnswer as error:
            self._count(Usage(failures=1))
            raise ChatError(f"{self.model}: {error}", kind="malformed") from error
        except ChatError as error:
            self._count(_failure_usage(error))
            raise
        self._count(reply.usage)
        if self._cache is not None and not answer.cached:
            self._cache.put(key, request, answer.raw)
        return reply

    def _count(self, spent: Usage) -> None:
        with self._usage_lock:
            self._usage += spent

    def _at_all(self, places: list[int], outcome: Reply | Failure) -> Iterator[tuple[int, Reply | Failure]]:
        """Give one outcome to all equal requests; only the first has cost anything."""
        yield places[0], outcome
        for place in places[1:]:
            if isinstance(outcome, Reply):
                again = replace(outcome, cached=True, usage=Usage(cache_hits=1))
                self._count(again.usage)
                yield place, again
            else:
                yield place, replace(outcome, usage=Usage())

    def _ask_all(self, todo: deque[tuple[str, Request]]) -> Iterator[tuple[str, Reply | Failure]]:
        """Ask everything in ``todo``, and stop early where going on is pointless."""
        watch = _Watch(max(8, 2 * self.concurrency))
        in_threads = min(self.concurrency, len(todo)) > 1
        for key, outcome in self._in_threads(todo, watch) if in_threads else self._in_turn(todo, watch):
            if isinstance(outcome, Failure) and outcome.kind in _HOPELESS:
                raise outcome.error
            yield key, outcome
        for key, _ in todo:
            yield key, Failure(ChatError(watch.reason, kind="skipped", attempts=0))

    def _in_turn(self, todo: deque[tuple[str, Request]], watch: _Watch) -> Iterator[tuple[str, Reply | Failure]]:
        while (item := watch.next(todo)) is not None:
            key, request = item
            yield key, watch.see(self._outcome(request, key))

    def _in_threads(self, todo: deque[tuple[str, Request]], watch: _Watch) -> Iterator[tuple[str, Reply | Failure]]:
        """Work ``todo`` off in daemon threads, so that Ctrl-C ends the program at once instead of after the calls."""
        outcomes: queue.SimpleQueue[tuple[str, Reply | Failure | BaseException | None]] = queue.SimpleQueue()

        def work() -> None:
            try:
                while (item := watch.next(todo)) is not None:
                    key, request = item
                    outcomes.put((key, watch.see(self._outcome(request, key))))
                outcomes.put(("", None))
            except BaseException as error:  # a full disk, or a bug: for the caller to see, not the thread
                outcomes.put(("", error))

        working = min(self.concurrency, len(todo))
        for number in range(working):
            threading.Thread(target=work, name=f"chat-{number}", daemon=True).start()
        try:
            while working:
                key, outcome = outcomes.get()
                if isinstance(outcome, BaseException):
                    raise outcome
                if outcome is None:
                    working -= 1
                else:
                    yield key, outcome
        finally:
            watch.stop("the caller has stopped")

    def _outcome(self, request: Request, key: str) -> Reply | Failure:
        try:
            return self._ask(request, key)
        except ChatError as error:
            # A long list of failures must not keep alive the frames, and so the requests, of its causes.
            error.__traceback__ = error.__cause__ = error.__context__ = None
            return Failure(error, _failure_usage(error))


class _Watch:
    """Hands out the work, and stops when the outcomes show that going on is pointless."""

    def __init__(self, most_in_a_row: int) -> None:
        self.reason: str = ""  # why it has stopped
        self._most = most_in_a_row
        self._in_a_row = 0
        self._lock = threading.Lock()

    def next(self, todo: deque[tuple[str, Request]]) -> tuple[str, Request] | None:
        with self._lock:
            return todo.popleft() if todo and not self.reason else None

    def see(self, outcome: Reply | Failure) -> Reply | Failure:
        with self._lock:
            failed = isinstance(outcome, Failure)
            self._in_a_row = self._in_a_row + 1 if failed and outcome.transient else 0
            if failed and outcome.kind in _HOPELESS:
                self.reason = str(outcome)
            elif self._in_a_row >= self._most and not self.reason:
                self.reason = f"not asked after {self._in_a_row} failures in a row, the last: {outcome}"
        return outcome

    def stop(self, reason: str) -> None:
        with self._lock:
            self.reason = self.reason or reason


def _failure_usage(error: ChatError) -> Usage:
    return Usage(failures=min(1, error.attempts), retries=max(0, error.attempts - 1))
