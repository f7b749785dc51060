"""Dynamic nearest-neighbour indexes with one interface: add, remove, nearest."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float
from scipy.spatial import KDTree

from dynmatch.costs import Real, distance_row
from papers_shared.errors import InputError


@runtime_checkable
class Index(Protocol):
    """Points under integer keys."""

    def add(self, key: int, point: np.ndarray) -> None:
        """Take a point in."""

    def remove(self, key: int) -> None:
        """Take a point out."""

    def nearest(self, point: np.ndarray) -> tuple[int, float] | None:
        """Return key and distance of the (approximately) nearest point, None if there is none."""

    def __len__(self) -> int: ...


class BruteIndex:
    """Look at every point; exact."""

    def __init__(self, dim: int, norm: Real, seed: int = 0) -> None:
        self.norm = norm
        self.points = np.empty((4, dim))
        self.keys = np.empty(4, np.int64)
        self.slots: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self.slots)

    def add(self, key: int, point: Float[np.ndarray, " d"]) -> None:
        """Take a point in."""
        n = len(self.slots)
        if n == len(self.keys):
            self.points = np.concatenate([self.points, np.empty_like(self.points)])
            self.keys = np.concatenate([self.keys, np.empty_like(self.keys)])
        self.points[n], self.keys[n], self.slots[key] = point, key, n

    def remove(self, key: int) -> None:
        """Take a point out; the last one fills its place."""
        i, last = self.slots.pop(key), len(self.slots)
        if i != last:
            self.points[i], self.keys[i] = self.points[last], self.keys[last]
            self.slots[int(self.keys[i])] = i

    def nearest(self, point: Float[np.ndarray, " d"]) -> tuple[int, float] | None:
        """Return key and distance of the nearest point."""
        n = len(self.slots)
        if not n:
            return None
        row = np.empty(n)
        distance_row(point, self.points, self.norm, 0, len(point), row)
        least = row.min()  # ties go to the smallest key, so that the order of arrival does not matter
        return int(self.keys[:n][row == least].min()), float(least)


class KDTreeIndex:
    """scipy's k-d trees of sizes 1, 2, 4, ... merged like a binary counter; removed points are tombstones; exact."""

    def __init__(self, dim: int, norm: Real, seed: int = 0) -> None:
        self.dim, self.norm = dim, norm
        self.live: dict[int, np.ndarray] = {}
        self.forest: list[tuple[KDTree, list[int]]] = []
        self.born: dict[int, int] = {}
        self._stamp = 0
        self.dead = 0

    def __len__(self) -> int:
        return len(self.live)

    def add(self, key: int, point: Float[np.ndarray, " d"]) -> None:
        """Start a tree of one point and merge trees of like size."""
        self.live[key] = np.array(point, dtype=np.float64)
        keys = [key]
        while self.forest and len(self.forest[-1][1]) <= len(keys):
            _, older = self.forest.pop()
            alive = [k for k in older if k in self.live and k not in keys]
            self.dead -= len(older) - len(alive)
            keys += alive
        self._plant(keys)

    def _plant(self, keys: list[int]) -> None:
        self.forest.append((KDTree(np.array([self.live[k] for k in keys])), keys))

    def remove(self, key: int) -> None:
        """Bury a point; when most are dead, plant anew."""
        del self.live[key]
        self.dead += 1
        if self.dead > max(8, len(self.live)):
            self.forest, self.dead = [], 0
            if self.live:
                self._plant(list(self.live))

    def nearest(self, point: Float[np.ndarray, " d"]) -> tuple[int, float] | None:
        """Ask each tree for ever more neighbours until a living one comes up."""
        best: tuple[int, float] | None = None
        for tree, keys in self.forest:
            k = min(2, len(keys))
            while True:
                distance, index = tree.query(point, k=[*range(1, k + 1)], p=self.norm)
                alive = [
                    (keys[i], float(d))
                    for d, i in zip(distance, index, strict=True)
                    if i < len(keys) and keys[i] in self.live and np.array_equal(tree.data[i], self.live[keys[i]])
                ]
                # One more than the nearest must be seen, so that of equally near ones the smallest key is taken.
                if k >= len(keys) or (alive and distance[-1] > alive[0][1]):
                    break
                k = min(2 * k, len(keys))
            for key, found in alive:
                if best is None or (found, key) < (best[1], best[0]):
                    best = key, found
        return best


class LSHIndex:
    """Locality-sensitive hashing by p-stable projections (Cauchy for l_1, Gauss for l_2); approximate, 1 <= p <= 2.

    References
    ----------
    Datar, Immorlica, Indyk, Mirrokni, "Locality-sensitive hashing scheme based on p-stable distributions", SoCG 2004.
    """

    def __init__(
        self, dim: int, norm: Real, seed: int = 0, tables: int = 8, hashes: int = 4, width: float = 1.0
    ) -> None:
        if not 1 <= norm <= 2:
            raise InputError(f"lsh needs a ground norm between 1 and 2, not {norm}", hint="use brute or kdtree")
        rng = np.random.default_rng([seed, dim])
        shape = (tables, hashes, dim)
        self.directions = _stable(norm, shape, rng)
        self.shifts = rng.random((tables, hashes)) * width
        self.width = width
        self.points: dict[int, np.ndarray] = {}
        self.buckets: list[dict[bytes, dict[int, None]]] = [{} for _ in range(tables)]
        self.norm = norm

    def __len__(self) -> int:
        return len(self.points)

    def _codes(self, point: np.ndarray) -> list[bytes]:
        cells = np.floor((self.directions @ point + self.shifts) / self.width)
        return [row.tobytes() for row in cells]

    def add(self, key: int, point: Float[np.ndarray, " d"]) -> None:
        """Hash a point into every table."""
        self.points[key] = np.array(point, dtype=np.float64)
        for bucket, code in zip(self.buckets, self._codes(point), strict=True):
            bucket.setdefault(code, {})[key] = None

    def remove(self, key: int) -> None:
        """Take a point out of every table."""
        point = self.points.pop(key)
        for bucket, code in zip(self.buckets, self._codes(point), strict=True):
            del bucket[code][key]
            if not bucket[code]:
                del bucket[code]

    def nearest(self, point: Float[np.ndarray, " d"]) -> tuple[int, float] | None:
        """Return the nearest of the points that share a bucket, or of all when none does."""
        if not self.points:
            return None
        found: dict[int, None] = {}
        for bucket, code in zip(self.buckets, self._codes(point), strict=True):
            found |= bucket.get(code, {})
        keys = list(found) or list(self.points)
        row = np.empty(len(keys))
        distance_row(point, np.array([self.points[k] for k in keys]), self.norm, 0, len(point), row)
        least = row.min()
        return min(k for k, d in zip(keys, row, strict=True) if d == least), float(least)


def _stable(alpha: float, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Draw symmetric alpha-stable variables by the method of Chambers, Mallows and Stuck."""
    if alpha == 2:
        return rng.standard_normal(shape)
    angle = rng.uniform(-np.pi / 2, np.pi / 2, shape)
    if alpha == 1:
        return np.tan(angle)
    wait = rng.exponential(size=shape)
    left = np.sin(alpha * angle) / np.cos(angle) ** (1 / alpha)
    return left * (np.cos((1 - alpha) * angle) / wait) ** ((1 - alpha) / alpha)


class HNSWIndex:
    """hnswlib's navigable small world graph; approximate, l_2 only; extra ``dynmatch[ann]``.

    What it finds depends on all that was ever added, so that an auction on it that was saved and loaded goes on as
    well as before, but not bit for bit.
    """

    def __init__(self, dim: int, norm: Real, seed: int = 0) -> None:
        if norm != 2:
            raise InputError(f"hnsw needs the l_2 ground norm, not l_{norm:g}", hint="use brute, kdtree or lsh")
        try:
            import hnswlib
        except ImportError as error:
            raise InputError("the hnsw backend needs hnswlib", hint="pip install 'dynmatch[ann]'") from error
        self.graph: Any = hnswlib.Index(space="l2", dim=dim)
        self.graph.init_index(max_elements=64, random_seed=seed + 1, allow_replace_deleted=True)
        self.points: dict[int, np.ndarray] = {}
        self.label: dict[int, int] = {}
        self.key: dict[int, int] = {}
        self.next, self.dead = 0, 0

    def __len__(self) -> int:
        return len(self.points)

    def add(self, key: int, point: Float[np.ndarray, " d"]) -> None:
        """Add a node to the graph under a label never used before, over a deleted node where there is one."""
        if not self.dead and len(self.points) >= self.graph.max_elements:
            self.graph.resize_index(2 * self.graph.max_elements)
        label = self.next
        self.next += 1
        self.graph.add_items(point[None], [label], num_threads=1, replace_deleted=self.dead > 0)
        self.dead -= self.dead > 0
        self.label[key], self.key[label], self.points[key] = label, key, np.array(point, dtype=np.float64)

    def remove(self, key: int) -> None:
        """Mark a node as deleted."""
        label = self.label.pop(key)
        del self.key[label], self.points[key]
        self.graph.mark_deleted(label)
        self.dead += 1

    def nearest(self, point: Float[np.ndarray, " d"]) -> tuple[int, float] | None:
        """Return the nearest node that greedy search finds, or any when the search meets deleted nodes only."""
        if not self.points:
            return None
        try:
            key = self.key[int(self.graph.knn_query(point[None], k=1, num_threads=1)[0][0, 0])]
        except RuntimeError:
            key = next(iter(self.points))
        return key, float(np.linalg.norm(self.points[key] - point))


BACKENDS = {"brute": BruteIndex, "kdtree": KDTreeIndex, "lsh": LSHIndex, "hnsw": HNSWIndex}


def make_index(backend: str, dim: int, norm: Real, seed: int = 0, width: float = 1.0) -> Index:
    """Make an empty index; ``width`` is the bucket width of lsh, the distance that should count as near."""
    if backend not in BACKENDS:
        raise InputError(f"no nearest-neighbour backend {backend!r}", hint=f"use {', '.join(BACKENDS)}")
    if backend == "lsh":
        return LSHIndex(dim, norm, seed, width=width)
    return BACKENDS[backend](dim, norm, seed)
