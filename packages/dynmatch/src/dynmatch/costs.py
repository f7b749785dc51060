r"""Ground distances, evaluated a row at a time: ``c(x, y) = (d(x, y) / S)^p`` from one point to many.

Nothing here ever builds a distance matrix. The compiled loops live beside the kernel that calls them; a metric given as
a Python callable ``f(x, Y) -> (m,)`` is called once per scanned point.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, no_type_check

import numpy as np
from jaxtyping import Float
from numba import njit
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import shortest_path

from dynmatch.errors import CapacityError, NotAMetricError

LARGEST = 1e150
"""Coordinates beyond this would overflow when squared."""

PRECOMPUTED, CALLABLE = -1.0, -2.0
NAMES = {
    "l1": 1.0,
    "manhattan": 1.0,
    "cityblock": 1.0,
    "l2": 2.0,
    "euclidean": 2.0,
    "linf": math.inf,
    "chebyshev": math.inf,
}

Real = float | int

NO_MATRIX = np.empty((0, 0))


@njit(cache=True)
@no_type_check
def distance_row(x, others, norm, first, last, out):
    """Fill ``out`` with the l_q distances from x to the first rows of others, over columns first..last."""
    n = len(out)
    if norm == 2.0:
        if last - first == 2:
            a, b = x[first], x[first + 1]
            for j in range(n):
                s, t = others[j, first] - a, others[j, first + 1] - b
                out[j] = np.sqrt(s * s + t * t)
        else:
            for j in range(n):
                total = 0.0
                for k in range(first, last):
                    t = others[j, k] - x[k]
                    total += t * t
                out[j] = np.sqrt(total)
    elif norm == 1.0:
        for j in range(n):
            total = 0.0
            for k in range(first, last):
                total += abs(others[j, k] - x[k])
            out[j] = total
    elif norm == np.inf:
        for j in range(n):
            total = 0.0
            for k in range(first, last):
                total = max(total, abs(others[j, k] - x[k]))
            out[j] = total
    else:
        for j in range(n):
            total = 0.0
            for k in range(first, last):
                total += abs(others[j, k] - x[k]) ** norm
            out[j] = total ** (1.0 / norm)


@njit(cache=True)
@no_type_check
def distance_pairs(left, right, norm, first, last, out):
    """Fill ``out`` with the l_q distances between rows of the same number."""
    for i in range(len(out)):
        distance_row(left[i], right[i : i + 1], norm, first, last, out[i : i + 1])


@njit(cache=True)
@no_type_check
def raise_row(out, power, scale):
    """Turn distances into costs ``(d / S)^p`` in place."""
    n = len(out)
    if scale != 1.0:
        for j in range(n):
            out[j] /= scale
    if power == 2.0:
        for j in range(n):
            out[j] *= out[j]
    elif power == 3.0:
        for j in range(n):
            out[j] = out[j] * out[j] * out[j]
    elif power != 1.0:
        for j in range(n):
            out[j] = out[j] ** power


@njit(cache=True)
@no_type_check
def cost_row(x, others, side, matrix, law, out):
    """Fill ``out`` with the search costs from x (of ``side``) to the other side's points; see `Metric.law`."""
    n = len(out)
    if law[0] == PRECOMPUTED:
        i = int(x[0])
        for j in range(n):
            k = int(others[j, 0])
            out[j] = matrix[i, k] if side == 0 else matrix[k, i]
    else:
        distance_row(x, others, law[0], int(law[4]), int(law[5]), out)
    unit = law[3]
    if unit > 0.0:
        for j in range(n):
            out[j] = np.ceil(out[j] / unit) * unit
    raise_row(out, law[1], law[2])


@njit(cache=True)
@no_type_check
def true_cost(x, y, law):
    """Cost of one pair in the true coordinates, where the search used rounded or projected ones."""
    out = np.empty(1)
    distance_row(x, y.reshape(1, -1), law[0], int(law[6]), int(law[7]), out)
    raise_row(out, law[1], law[2])
    return out[0]


@dataclass
class Metric:
    """A ground distance d and how to evaluate it.

    Attributes
    ----------
    kind
        ``norm`` of l_q, or ``PRECOMPUTED``, or ``CALLABLE``.
    matrix
        ``(N, N)`` (or rectangular, for `ExactMatcher`) distances, where points are row and column numbers.
    function
        ``f(x, Y) -> (m,)``, vectorised over the rows of Y.
    """

    kind: Real
    matrix: np.ndarray = field(default_factory=lambda: NO_MATRIX)
    function: Callable[..., Any] | None = None

    def row(self, x: Float[np.ndarray, " d"], others: Float[np.ndarray, "m d"]) -> Float[np.ndarray, " m"]:
        """Distances from one point to each row of ``others``."""
        out = np.empty(len(others))
        if self.kind == CALLABLE:
            assert self.function is not None
            found = np.asarray(self.function(x, others), dtype=np.float64)
            if found.shape != out.shape:
                raise ValueError(f"the metric returned shape {found.shape} for {len(others)} points; want (m,)")
            if not (np.isfinite(found).all() and (found >= 0).all()):
                raise NotAMetricError("the metric returned a negative or non-finite distance")
            return found
        if self.kind == PRECOMPUTED:
            return self.matrix[int(x[0]), others[:, 0].astype(np.intp)]
        distance_row(x, others, self.kind, 0, len(x), out)
        return out

    def paired(self, first: Float[np.ndarray, "m d"], second: Float[np.ndarray, "m d"]) -> Float[np.ndarray, " m"]:
        """Distances from each row of ``first`` to the same row of ``second``; one call of a callable per left point."""
        if self.kind == PRECOMPUTED:
            return self.matrix[first[:, 0].astype(np.intp), second[:, 0].astype(np.intp)]
        out = np.empty(len(first))
        if self.kind != CALLABLE:
            distance_pairs(first, second, self.kind, 0, first.shape[1], out)
            return out
        groups: dict[bytes, list[int]] = {}
        for i, x in enumerate(first):
            groups.setdefault(x.tobytes(), []).append(i)
        for members in groups.values():
            out[members] = self.row(first[members[0]], second[members])
        return out

    def law(self, power: Real, scale: Real = 1.0, dim: int = 1, unit: Real = 0.0, search: int | None = None):
        """Return the parameters the compiled loops read: norm, p, S, rounding unit, search and true columns."""
        split = dim if search is None else search
        start = 0 if search is None else search
        return np.array([self.kind, power, scale, unit, 0, split, start, dim], dtype=np.float64)


def make_metric(metric: Any, matrix: Any = None, norm: Real = 2.0) -> Metric:
    """Read what users call a metric: a name, ``minkowski`` with a norm, a matrix, a callable.

    Raises
    ------
    ValueError
        An unknown name, a norm below 1, or a matrix with negative or non-finite entries.
    """
    if isinstance(metric, Metric):
        return metric
    if isinstance(metric, np.ndarray):
        metric, matrix = "precomputed", metric
    if callable(metric):
        return Metric(CALLABLE, function=metric)
    name = str(metric).lower()
    if name == "precomputed":
        if matrix is None:
            raise ValueError("metric='precomputed' needs matrix=, the distances")
        table = np.ascontiguousarray(matrix, dtype=np.float64)
        if table.ndim != 2:
            raise ValueError(f"the distance matrix must have two axes, not shape {table.shape}")
        bad = np.argwhere(~np.isfinite(table) | (table < 0))
        if len(bad):
            raise ValueError(f"distance matrix entry {tuple(bad[0].tolist())} is negative or not finite")
        return Metric(PRECOMPUTED, matrix=table)
    if name == "minkowski":
        if not norm >= 1:
            raise ValueError(f"the l_p ground norm needs 1 <= p <= inf, not {norm}")
        return Metric(float(norm))
    if name not in NAMES:
        raise ValueError(f"unknown metric {metric!r}; give {', '.join(NAMES)}, minkowski, precomputed or a callable")
    return Metric(NAMES[name])


def graph_metric(graph: Any, weight: str = "weight") -> tuple[Float[np.ndarray, "n n"], list[Any]]:
    """Shortest-path distances of a networkx graph, by scipy's Dijkstra.

    Parameters
    ----------
    graph
        Undirected and connected.
    weight
        The edges' length attribute; edges without it have length 1.

    Returns
    -------
    matrix : ndarray
        ``(n, n)`` in the order of ``nodes``.
    nodes : list
        The graph's nodes.

    Raises
    ------
    NotAMetricError
        Directed or disconnected graph, or a negative edge length.
    """
    if graph.is_directed():
        raise NotAMetricError("the graph is directed, so its shortest paths are not symmetric", "use to_undirected()")
    nodes = list(graph.nodes)
    number = {node: i for i, node in enumerate(nodes)}
    best: dict[tuple[int, int], float] = {}
    for u, v, attributes in graph.edges(data=True):
        length = float(attributes.get(weight, 1.0))
        if not (length >= 0 and math.isfinite(length)):
            raise NotAMetricError(f"edge {u}-{v} has length {length}")
        pair = (number[u], number[v])
        best[pair] = min(best.get(pair, math.inf), max(length, 1e-300))
    rows, columns = [i for i, _ in best], [j for _, j in best]
    table = csr_matrix((list(best.values()), (rows, columns)), shape=(len(nodes), len(nodes)))
    found = shortest_path(table, method="D", directed=False)
    if not np.isfinite(found).all():
        i, j = np.argwhere(~np.isfinite(found))[0]
        raise NotAMetricError(f"no path joins {nodes[i]} and {nodes[j]}", hint="keep one connected component")
    found[found < 1e-290] = 0.0
    return np.minimum(found, found.T), nodes


def check_metric(
    metric: Metric, points: Float[np.ndarray, "m d"], rng: np.random.Generator, triples: int = 300
) -> None:
    """Sample symmetry, zero self-distance and the triangle inequality among the given points.

    Raises
    ------
    NotAMetricError
        Naming the first violation (i, j, k), as row numbers of ``points``.
    """
    if metric.kind not in (PRECOMPUTED, CALLABLE) or len(points) < 2:
        return
    if metric.kind == PRECOMPUTED and metric.matrix.shape[0] != metric.matrix.shape[1]:
        raise NotAMetricError(f"a {metric.matrix.shape} matrix is not a metric on one set of points")
    chosen = rng.choice(len(points), size=min(len(points), 24), replace=False)
    table = np.stack([metric.row(points[i], points[chosen]) for i in chosen])
    tolerance = 1e-9 * max(float(table.max()), 1e-300)
    if metric.kind == PRECOMPUTED:
        full = metric.matrix
        worst = np.argwhere(np.abs(full - full.T) > 1e-9 * max(float(full.max()), 1e-300))
        if len(worst):
            i, j = (int(v) for v in worst[0])
            raise NotAMetricError(
                f"d({i}, {j}) = {full[i, j]:g} but d({j}, {i}) = {full[j, i]:g} (i, j, k) = ({i}, {j}, {i})"
            )
    for i, j in np.argwhere(np.abs(table - table.T) > tolerance):
        a, b = chosen[i], chosen[j]
        raise NotAMetricError(
            f"d({a}, {b}) = {table[i, j]:g} but d({b}, {a}) = {table[j, i]:g} (i, j, k) = ({a}, {b}, {a})"
        )
    for i in np.flatnonzero(np.diag(table) > tolerance):
        raise NotAMetricError(f"d({chosen[i]}, {chosen[i]}) = {table[i, i]:g}, not 0 (i, j, k) = ({chosen[i]},) * 3")
    m = len(chosen)
    for i, j, k in rng.integers(0, m, size=(triples, 3)):
        if table[i, k] > table[i, j] + table[j, k] + tolerance:
            a, b, c = chosen[i], chosen[j], chosen[k]
            raise NotAMetricError(
                f"triangle inequality broken at (i, j, k) = ({a}, {b}, {c}): "
                f"d(i, k) = {table[i, k]:g} > {table[i, j]:g} + {table[j, k]:g}",
                hint="a hub needs a metric; ExactMatcher takes any cost",
            )


def validate_point(point: Any, dim: int | None, row: int | None = None, name: Any = None) -> Float[np.ndarray, " d"]:
    """Turn a user's point into a float64 vector.

    Raises
    ------
    ValueError
        NaN, infinity, a wrong number of coordinates; the message names row and id.
    CapacityError
        A coordinate above 1e150 in size, whose square would overflow.
    """
    where = f"point {name!r}" if name is not None else "point"
    where = where if row is None else f"row {row}, {where}"
    try:
        x = np.atleast_1d(np.asarray(point, dtype=np.float64))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}: {point!r} is not a vector of numbers") from error
    if x.ndim != 1 or (dim is not None and x.shape != (dim,)):
        raise ValueError(f"{where}: shape {x.shape}, want ({dim if dim is not None else 'd'},)")
    if not len(x):
        raise ValueError(f"{where}: no coordinates")
    if not np.isfinite(x).all():
        raise ValueError(f"{where}: coordinate {int(np.flatnonzero(~np.isfinite(x))[0])} is {x[~np.isfinite(x)][0]}")
    if np.abs(x).max() > LARGEST:
        raise CapacityError(f"{where}: a coordinate is larger than {LARGEST:g}", hint="scale the points")
    return x
