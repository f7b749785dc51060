"""A drift monitor: the Wasserstein distance between a fixed reference and a sliding window."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
from jaxtyping import Num

from dynmatch.factory import make_matcher
from dynmatch.matcher import BaseMatcher


class SlidingWindow:
    r"""Watch a stream: after each point, :math:`W_p` between the reference and the last ``size`` points.

    Parameters
    ----------
    reference
        ``(n, d)`` points, kept.
    size
        Points in the window. Until it is full, the points at hand are compared with their best partners only.
    method
        ``exact``, ``grid``, ``hub`` or ``auto`` (exact up to 4000 points, else grid).
    **options
        Of the matcher: ``p``, ``norm`` or ``metric``, ``eps``, ``k``, ``seed``.

    Examples
    --------
    >>> monitor = SlidingWindow(np.zeros((3, 2)), size=3)
    >>> [monitor.push([3.0, 4.0]) for _ in range(4)]
    [5.0, 5.0, 5.0, 5.0]
    """

    def __init__(self, reference: Num[np.ndarray, "n d"], size: int, method: str = "auto", **options: Any) -> None:
        points = np.asarray(reference, dtype=np.float64)
        if points.ndim != 2 or not len(points):
            raise ValueError(f"the reference must be (n, d) with n >= 1, not {points.shape}")
        if size < 1:
            raise ValueError(f"the window must hold at least one point, not {size}")
        if method == "auto":
            method = "exact" if len(points) + size <= 4000 else "grid"
        self.size = int(size)
        self.matcher: BaseMatcher = make_matcher(method, points.shape[1], **options)
        self.matcher.extend("A", points)
        self.seen = 0
        self.live: deque[str] = deque()

    @property
    def full(self) -> bool:
        """Whether the window holds ``size`` points."""
        return len(self.live) == self.size

    def push(self, point: Any) -> float:
        """Take the next point, drop the oldest if the window was full, and return the normalized distance.

        Raises
        ------
        ValueError
            NaN, infinity or a wrong dimension; the window is unchanged.
        """
        name = f"w{self.seen}"
        self.matcher.insert("B", point, id=name)
        self.live.append(name)
        self.seen += 1
        if len(self.live) > self.size:
            self.matcher.delete(self.live.popleft())
        return self.distance()

    def distance(self) -> float:
        """Return the present distance, normalized by the number of matched points."""
        return self.matcher.wasserstein(normalized=True)

    def state(self) -> dict[str, Any]:
        """Return the monitor as plain values."""
        return {"size": self.size, "seen": self.seen, "live": list(self.live), "matcher": self.matcher.state()}

    @staticmethod
    def from_state(state: dict[str, Any], **given: Any) -> SlidingWindow:
        """Make a monitor that continues from `state`, bit for bit."""
        made = SlidingWindow.__new__(SlidingWindow)
        made.size, made.seen, made.live = int(state["size"]), int(state["seen"]), deque(state["live"])
        made.matcher = BaseMatcher.from_state(state["matcher"], **given)
        return made
