"""Asking again: what is worth it, how long to wait, and when to stop."""

from __future__ import annotations

import email.utils
import logging
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypeVar

from papers_shared.chat.protocol import ChatError

T = TypeVar("T")

log = logging.getLogger("papers_shared.chat")


class TransientError(Exception):
    """An attempt that failed in a way that may not last; ``wait`` is what the server asks for, in seconds."""

    def __init__(self, message: str, *, kind: str, status: int | None = None, wait: float | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.status = status
        self.wait = wait


@dataclass
class Retry:
    """Attempts with exponential backoff; a wait that the server asks for holds for all threads.

    The wait before retry k is ``backoff * 2**k * u`` with u uniform in [0.5, 1], from a generator seeded with
    (``seed``, request, k), or what the server asks for; in both cases at most ``max_wait``.

    Parameters
    ----------
    max_retries
        Retries after the first attempt.
    timeout
        Seconds for one attempt.
    total_timeout
        Seconds for all attempts of one request and the waits between them.
    backoff, max_wait
        Seconds.
    seed
        For the jitter.
    """

    max_retries: int
    timeout: float
    total_timeout: float
    backoff: float
    max_wait: float
    seed: int
    _not_before: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, attempt: Callable[[float], T], key: str) -> tuple[T, int]:
        """Call ``attempt(seconds)`` until it succeeds; return its value and the number of retries.

        Raises
        ------
        ChatError
            No attempts or no time are left.
        """
        begun = time.monotonic()
        tried = 0
        while True:
            self._pause(begun + self.total_timeout)
            left = begun + self.total_timeout - time.monotonic()
            try:
                return attempt(min(self.timeout, left)), tried
            except TransientError as error:
                tried += 1
                wait = self._wait(error, key, tried)
                left = begun + self.total_timeout - time.monotonic()
                if tried > self.max_retries or wait >= left:
                    raise self._gave_up(error, tried, time.monotonic() - begun, wait) from error
                log.info("%s; attempt %d failed, next in %.1f s", error, tried, wait)
            except ChatError as error:
                error.attempts = tried + 1
                raise
            time.sleep(wait)

    def _wait(self, error: TransientError, key: str, tried: int) -> float:
        if error.wait is not None:
            wait = min(error.wait, self.max_wait)
            with self._lock:
                self._not_before = max(self._not_before, time.monotonic() + wait)
            return wait
        jitter = random.Random(f"{self.seed}/{key}/{tried}").uniform(0.5, 1.0)
        return min(self.backoff * 2 ** (tried - 1) * jitter, self.max_wait)

    def _pause(self, deadline: float) -> None:
        """Wait as long as the server has asked any thread to wait, within this request's own time."""
        with self._lock:
            until = min(self._not_before, deadline - min(1.0, self.timeout))
        time.sleep(max(0.0, until - time.monotonic()))

    def _gave_up(self, error: TransientError, tried: int, seconds: float, wait: float) -> ChatError:
        times = "once" if tried == 1 else f"{tried} times"
        why = "" if tried > self.max_retries else f", and a wait of {wait:.3g} s would pass the limit for one request"
        return ChatError(
            f"{error} (asked {times} in {seconds:.3g} s{why})",
            "try again later; with a cache only what is missing is asked",
            kind=error.kind,
            status=error.status,
            attempts=tried,
        )


def retry_after(value: str | None) -> float | None:
    """Return the seconds that a ``Retry-After`` header asks for: a number or an HTTP date; None if it is neither."""
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            moment = email.utils.parsedate_to_datetime(value)
        except (ValueError, TypeError):
            return None
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        seconds = (moment - datetime.now(UTC)).total_seconds()
    return max(0.0, seconds) if seconds < float("inf") else None
