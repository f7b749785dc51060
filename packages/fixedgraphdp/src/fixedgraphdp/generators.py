"""Hypergraphs with known properties: random ones, clustered ones, and the hard ones of the theory."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from fixedgraphdp.graph import AttributionGraph
from papers_shared.errors import InputError


def chung_lu_hypergraph(n: int, n_users: int, r: int, *, exponent: float = 2.5, seed: int = 0) -> AttributionGraph:
    r"""Draw n examples of 1 to r users, each user with probability proportional to :math:`i^{-1/(\gamma - 1)}`.

    An example draws its users one after the other and again whenever it has the one it drew.
    """
    rng = np.random.default_rng(seed)
    attraction = np.arange(1, n_users + 1) ** (-1.0 / (exponent - 1))
    below = np.cumsum(attraction)
    sizes = rng.integers(1, min(r, n_users) + 1, n)
    drawn = np.full((n, int(sizes.max(initial=1))), -1)
    for slot in range(drawn.shape[1]):
        open_ = np.flatnonzero(sizes > slot)
        while len(open_):
            drawn[open_, slot] = np.searchsorted(below, rng.random(len(open_)) * below[-1], side="right")
            open_ = open_[(drawn[open_, :slot] == drawn[open_, slot, None]).any(axis=1)]
    example, slot = np.nonzero(drawn >= 0)
    return AttributionGraph.from_indices(example, drawn[example, slot], n_users=n_users)


def uniform_hypergraph(n: int, n_users: int, size: int = 3, *, seed: int = 0) -> AttributionGraph:
    """Draw n examples of exactly ``size`` different users each, all users alike; a million examples take seconds.

    Raises
    ------
    InputError
        More users in an example than there are.
    """
    if not 1 <= size <= n_users:
        raise InputError(f"an example of {size} users cannot be drawn from {n_users}")
    rng = np.random.default_rng(seed)
    users = np.sort(rng.integers(0, n_users, (n, size)), axis=1)
    while len(repeats := np.flatnonzero((users[:, 1:] == users[:, :-1]).any(axis=1))):
        users[repeats] = np.sort(rng.integers(0, n_users, (len(repeats), size)), axis=1)
    return AttributionGraph.from_indices(np.repeat(np.arange(n), size), users.ravel(), n_users=n_users)


def preferential_authors(n: int = 20_000, n_users: int = 8_000, r: int = 8, *, seed: int = 0) -> AttributionGraph:
    """Draw papers whose authors come from an urn that starts with each author once and gains a ball per authorship.

    Sizes are geometric with success probability .45, at most r.
    """
    rng = np.random.default_rng(seed)
    sizes = np.minimum(rng.geometric(0.45, n), r)
    urn = np.empty(n_users + int(sizes.sum()), np.int64)
    urn[:n_users] = np.arange(n_users)
    filled = n_users
    lists = []
    for size in sizes:
        authors: list[int] = []
        while len(authors) < size:
            author = int(urn[rng.integers(filled)])
            if author not in authors:
                authors.append(author)
        urn[filled : filled + size] = authors
        filled += size
        lists.append(authors)
    return AttributionGraph.from_lists(lists, n_users=n_users)


def clustered(m: int, c: int) -> AttributionGraph:
    """Make m disjoint clusters: one user each, with c examples."""
    return AttributionGraph.from_indices(np.arange(m * c), np.repeat(np.arange(m), c))


def star(n: int) -> AttributionGraph:
    """Put one user into all of n examples, each with a user of its own besides."""
    return AttributionGraph.from_lists([(0, e + 1) for e in range(n)])


def greedy_tight(r: int) -> AttributionGraph:
    """Make the example {1..r} and, for each i of it, one of i with r - 1 users of its own: the optimum for k = 1 is r.

    Greedy in the given order takes the first example and is stuck at 1.
    """
    private = itertools.count(r)
    blocked = [[i, *itertools.islice(private, r - 1)] for i in range(r)]
    return AttributionGraph.from_lists([list(range(r)), *blocked])


def projective_plane(r: int) -> AttributionGraph:
    """Make the projective plane of prime order r - 1: points are users, lines are examples of r users.

    Any two lines meet, so one example is all that k = 1 allows, while the LP takes 1/r of each of the
    :math:`r^2 - r + 1` lines.

    Raises
    ------
    InputError
        r - 1 is not prime.
    """
    order = r - 1
    if order < 2 or any(order % f == 0 for f in range(2, order)):
        raise InputError(f"r - 1 must be prime, not {order}")
    points = [(1, a, b) for a in range(order) for b in range(order)] + [(0, 1, a) for a in range(order)] + [(0, 0, 1)]
    lines = [
        [i for i, point in enumerate(points) if sum(x * y for x, y in zip(line, point, strict=True)) % order == 0]
        for line in points
    ]
    return AttributionGraph.from_lists(lists=lines)


def set_packing(sets: Sequence[Sequence[int]], k: int = 1) -> AttributionGraph:
    """Reduce set packing to contribution bounding, which is therefore as hard: no factor better than r / log r.

    The sets are the first examples; for k > 1 each element gets k - 1 examples of its own, which some optimum contains
    all, so the optimum is (k - 1) times the number of elements larger.
    """
    elements = 1 + max((element for members in sets for element in members), default=-1)
    own = [[element] for element in range(elements) for _ in range(k - 1)]
    return AttributionGraph.from_lists([*sets, *own], n_users=elements)


class LogisticTask(NamedTuple):
    """Features, labels in {0, 1} and the true coefficients; the last quarter of the rows is for testing."""

    x: Float[np.ndarray, "n d"]
    y: Float[np.ndarray, " n"]
    theta: Float[np.ndarray, " d"]


def logistic_task(
    graph: AttributionGraph, d: int = 64, *, norm: float = 2.0, shift: float = 0.0, extra: int = 0, seed: int = 0
) -> LogisticTask:
    r"""Draw :math:`x \sim N(0, I_d)` and :math:`P(y = 1) = 1/(1 + e^{-\theta^\top x - b_e})`, :math:`\theta` known.

    Parameters
    ----------
    graph
        One row per example.
    d, norm
        Dimension, and length of the true coefficients.
    shift
        :math:`b_e` is this times the standardised mean log degree of the example's users: contents that depend on who
        owns them, so that bounding biases.
    extra
        Further rows without a shift, after those of the examples, for testing.
    seed
        Of everything.
    """
    rng = np.random.default_rng([seed, 2])
    theta = rng.standard_normal(d)
    theta *= norm / np.linalg.norm(theta)
    n = graph.n_examples + extra
    x = rng.standard_normal((n, d))
    logits = x @ theta
    if shift:
        logits[: graph.n_examples] += shift * popularity(graph)
    y = (rng.random(n) < 1 / (1 + np.exp(-logits))).astype(np.float32)
    return LogisticTask(x.astype(np.float32), y, theta.astype(np.float32))


def popularity(graph: AttributionGraph) -> Float[np.ndarray, " n"]:
    """Return the standardised mean log degree of each example's users."""
    logs = np.log1p(graph.degrees)[graph.example_users]
    mean = np.bincount(graph.example_of_incidence, logs, graph.n_examples) / np.maximum(graph.sizes, 1)
    spread = mean.std()
    return (mean - mean.mean()) / spread if spread > 0 else np.zeros_like(mean)
