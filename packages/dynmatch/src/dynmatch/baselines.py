"""What the matchers are compared with: solving from scratch with the field's libraries, and cheap heuristics."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import numpy as np
from jaxtyping import Float
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from scipy.stats import wasserstein_distance

from dynmatch.costs import Real
from dynmatch.errors import UnequalSizesError
from papers_shared.errors import InputError

Points = Float[np.ndarray, "n d"]


def cost_matrix(A: Points, B: Float[np.ndarray, "m d"], p: Real = 1.0, norm: Real = 2.0) -> Float[np.ndarray, "n m"]:
    """Return the full matrix of d^p, which only the baselines need."""
    if np.isinf(norm):
        table = cdist(A, B, "chebyshev")
    else:
        table = (
            cdist(A, B, "minkowski", p=norm)
            if norm not in (1, 2)
            else cdist(A, B, "cityblock" if norm == 1 else "euclidean")
        )
    return table**p


def scipy_lsa(A: Points, B: Float[np.ndarray, "m d"], p: Real = 1.0, norm: Real = 2.0) -> float:
    """Exact W_p by scipy's ``linear_sum_assignment``."""
    table = cost_matrix(A, B, p, norm)
    return float(table[linear_sum_assignment(table)].sum() ** (1 / p))


def lapx_lapjv(A: Points, B: Float[np.ndarray, "m d"], p: Real = 1.0, norm: Real = 2.0) -> float:
    """Exact W_p by ``lap.lapjv`` of lapx (extra ``dynmatch[peers]``)."""
    lap = _peer("lap", "lapx")
    total = lap.lapjv(cost_matrix(A, B, p, norm), extend_cost=True)[0]
    return float(total ** (1 / p))


def pot_emd(A: Points, B: Float[np.ndarray, "m d"], p: Real = 1.0, norm: Real = 2.0) -> float:
    """Exact W_p of equal sizes by POT's ``ot.emd2`` (extra ``dynmatch[peers]``)."""
    ot = _peer("ot", "POT")
    n = _equal(A, B)
    weights = np.full(n, 1 / n)
    return float((n * ot.emd2(weights, weights, cost_matrix(A, B, p, norm), numItermax=10_000_000)) ** (1 / p))


class WarmEmd:
    """POT's ``ot.emd2`` along a stream, each solve begun from the duals of the last (extra ``dynmatch[peers]``).

    Attributes
    ----------
    warm
        Whether the installed POT takes a start.
    """

    def __init__(self) -> None:
        self.duals: tuple[dict[Any, float], dict[Any, float]] = ({}, {})
        self.warm = False

    def solve(self, a: dict[Any, np.ndarray], b: dict[Any, np.ndarray], p: Real = 1.0) -> float:
        """Return the exact W_p of two sets of one size, given as points by id; ids tell which duals belong to whom."""
        ot = _peer("ot", "POT")
        n = _equal(np.array(list(a.values())), np.array(list(b.values())))
        weights = np.full(n, 1 / n)
        options: dict[str, Any] = {"log": True, "numItermax": 10_000_000}
        self.warm = "potentials_init" in inspect.signature(ot.emd2).parameters
        if self.warm and self.duals[0]:
            options["potentials_init"] = tuple(
                np.array([known.get(name, 0.0) for name in side])
                for known, side in zip(self.duals, (a, b), strict=True)
            )
        table = cost_matrix(np.array(list(a.values())), np.array(list(b.values())), p)
        value, log = ot.emd2(weights, weights, table, **options)
        self.duals = (dict(zip(a, log["u"], strict=True)), dict(zip(b, log["v"], strict=True)))
        return float((n * value) ** (1 / p))


def pot_sinkhorn(A: Points, B: Float[np.ndarray, "m d"], p: Real = 1.0, reg: Real = 0.02) -> float:
    """Entropic W_p of equal sizes by ``ot.sinkhorn2``; ``reg`` is relative to the mean cost. Biased upwards."""
    ot = _peer("ot", "POT")
    n = _equal(A, B)
    weights = np.full(n, 1 / n)
    table = cost_matrix(A, B, p)
    value = ot.sinkhorn2(
        weights, weights, table, reg * float(table.mean()), method="sinkhorn_log", numItermax=2000, warn=False
    )
    return float((n * np.asarray(value).item()) ** (1 / p))


def quadtree_greedy(A: Points, B: Float[np.ndarray, "m d"], norm: Real = 2.0, seed: int = 0) -> float:
    """W_1 of the randomly shifted dyadic grid: match arbitrarily in each cell, finest first."""
    rng = np.random.default_rng(seed)
    points = np.concatenate([A, B])
    low, span = points.min(axis=0), float(np.ptp(points, axis=0).max()) or 1.0
    scaled = (points - low + rng.random(points.shape[1]) * span) / (2 * span)
    left = [list(range(len(A))), list(range(len(A), len(points)))]
    total = 0.0
    for level in range(40, -1, -1):
        cells: dict[bytes, tuple[list[int], list[int]]] = {}
        for side in range(2):
            codes = np.floor(scaled[left[side]] * 2.0**level).astype(np.int64)
            for i, code in zip(left[side], codes, strict=True):
                cells.setdefault(code.tobytes(), ([], []))[side].append(i)
        left = [[], []]
        for first, second in cells.values():
            while first and second:
                a, b = first.pop(), second.pop()
                total += float(np.linalg.norm(points[a] - points[b], ord=norm))
            left[0] += first
            left[1] += second
        if not left[0] or not left[1]:
            break
    return total


def nearest_greedy(A: Points, B: Float[np.ndarray, "m d"], p: Real = 1.0, norm: Real = 2.0) -> float:
    """W_p of the greedy matching: again and again the closest free pair."""
    table = cost_matrix(A, B, p, norm)
    order = np.argsort(table, axis=None, kind="stable")
    used_a, used_b = np.zeros(len(A), np.bool_), np.zeros(len(B), np.bool_)
    total, left = 0.0, min(len(A), len(B))
    for flat in order:
        i, j = divmod(int(flat), len(B))
        if not used_a[i] and not used_b[j]:
            used_a[i] = used_b[j] = True
            total += float(table[i, j])
            left -= 1
            if not left:
                break
    return total ** (1 / p)


def sliced(A: Points, B: Float[np.ndarray, "m d"], directions: int = 64, seed: int = 0) -> float:
    """Sliced W_1 of equal sizes (sum, not mean): the average over random directions of the sorted formula.

    It is a lower bound on the Euclidean W_1.
    """
    rng = np.random.default_rng(seed)
    n = _equal(A, B)
    normals = rng.normal(size=(directions, A.shape[1]))
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    return float(np.mean([n * wasserstein_distance(A @ v, B @ v) for v in normals]))


def _equal(A: np.ndarray, B: np.ndarray) -> int:
    if len(A) != len(B) or not len(A):
        raise UnequalSizesError(f"this peer needs two sets of one size, got {len(A)} and {len(B)}")
    return len(A)


def _peer(module: str, name: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise InputError(f"{name} is not installed", hint="pip install 'dynmatch[peers]'") from error


METHODS = {
    "scipy LSA": scipy_lsa,
    "lapx lapjv": lapx_lapjv,
    "POT emd2": pot_emd,
    "POT sinkhorn2": pot_sinkhorn,
    "quadtree greedy": quadtree_greedy,
    "nearest greedy": nearest_greedy,
    "sliced W1": sliced,
}
