"""One way to make any matcher by name, and the static problem on top of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Num

from dynmatch.costs import NAMES, Real
from dynmatch.exact import ExactMatcher
from dynmatch.grid import GridMatcher
from dynmatch.hub import HubMatcher
from dynmatch.matcher import BaseMatcher
from dynmatch.protocol import Side
from papers_shared.errors import InputError

METHODS = ("exact", "grid", "hub")


def make_matcher(
    method: str,
    dim: int | None,
    *,
    metric: Any = "l2",
    p: Real = 1.0,
    norm: Real | None = None,
    eps: Real | None = None,
    k: int = 2,
    matrix: Any = None,
    seed: int = 0,
    **options: Any,
) -> BaseMatcher:
    """Make an empty matcher.

    Parameters
    ----------
    method
        ``exact``, ``grid`` or ``hub``.
    dim
        Coordinates of a point; the grid needs it.
    metric, p, norm, eps, k, matrix, seed, **options
        As in the matchers' constructors; eps defaults to 0.25 for the grid and 0.1 for hubs.

    Raises
    ------
    InputError
        A combination that no matcher can do.
    """
    if norm is not None:
        metric = "minkowski"
    if method == "exact":
        if options:
            raise TypeError(f"the exact matcher has no option {', '.join(options)}")
        return ExactMatcher(metric, p, matrix=matrix, norm=2.0 if norm is None else norm)
    if method == "hub":
        return HubMatcher(
            metric,
            p,
            k=k,
            eps=0.1 if eps is None else eps,
            matrix=matrix,
            norm=2.0 if norm is None else norm,
            seed=seed,
            **options,
        )
    if method != "grid":
        raise InputError(f"no method {method!r}", hint=f"use {', '.join(METHODS)}")
    if not isinstance(metric, str) or metric == "precomputed":
        raise InputError("the grid needs points in R^d and an l_p norm", hint="use exact or hub for other metrics")
    if p != 1:
        raise InputError(f"the grid is for W_1, not p = {p:g}", hint="use exact or hub")
    if dim is None:
        raise InputError("the grid needs to know the dimension before the first point")
    ground = norm if norm is not None else NAMES.get(metric, math.nan)
    if math.isnan(ground):
        raise InputError(f"no ground norm {metric!r}", hint=f"use {', '.join(NAMES)}")
    return GridMatcher(dim, norm=ground, eps=0.25 if eps is None else eps, seed=seed, **options)


@dataclass(frozen=True)
class Matching:
    """The answer of `match`.

    Attributes
    ----------
    cost
        W_p, without 1/n.
    rows, columns
        Row numbers of A and B that are matched, as scipy's ``linear_sum_assignment`` gives them.
    distances
        Of the pairs.
    lower_bound
        What W_p cannot be below, or None.
    """

    cost: float
    rows: np.ndarray
    columns: np.ndarray
    distances: np.ndarray
    lower_bound: float | None


def match(A: Num[np.ndarray, "n d"], B: Num[np.ndarray, "m d"], method: str = "auto", **options: Any) -> Matching:
    r"""Match two fixed sets of points, of any two sizes, without a distance matrix.

    Parameters
    ----------
    A, B
        ``(n, d)`` and ``(m, d)`` points.
    method
        ``auto`` is exact up to 3000 points in all (or p > 1), else grid.
    **options
        As `make_matcher`.

    Returns
    -------
    Matching
        min(n, m) pairs of least (exact) or nearly least :math:`\sum d^p`.
    """
    first, second = np.asarray(A, dtype=np.float64), np.asarray(B, dtype=np.float64)
    if method == "auto":
        method = "exact" if len(first) + len(second) <= 3000 or options.get("p", 1) != 1 else "grid"
    matcher = make_matcher(method, first.shape[1], **options)
    # The larger side first: each point of the smaller side then ends at the first free partner.
    sides: list[tuple[Side, np.ndarray]] = [("A", first), ("B", second)]
    number: dict[Any, int] = {}
    for side, points in sides if len(first) >= len(second) else sides[::-1]:
        number |= {name: row for row, name in enumerate(matcher.extend(side, points))}
    ids_a, ids_b, distances = matcher.pairs()
    rows, columns = (np.array([number[i] for i in ids], np.int64) for ids in (ids_a, ids_b))
    by_row = np.argsort(rows, kind="stable")
    return Matching(matcher.cost(), rows[by_row], columns[by_row], distances[by_row], matcher.lower_bound())


def exact_cost(A: Float[np.ndarray, "n d"], B: Float[np.ndarray, "m d"], p: Real = 1.0, norm: Real = 2.0) -> float:
    """Return the exact W_p of two fixed sets."""
    return match(A, B, "exact", p=p, norm=norm).cost
