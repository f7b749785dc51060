"""Where the nested grids lie: shift, branching, levels, the cells of a point, and how the root grows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from jaxtyping import Float

from dynmatch.costs import Real

Coordinates = tuple[int, ...]


class GridLayout:
    r"""Randomly shifted nested grids with branching :math:`b = \max(2, \lceil n^\epsilon \rceil)` over some points.

    The root is twice as wide as the points' box and lies at random over it; :math:`\lceil 1/\epsilon \rceil` (and
    ``extra``) levels below it are the leaves. Cells are known by their level's integer coordinates.

    Parameters
    ----------
    points
        ``(n, d)``.
    norm, eps, project, seed
        As in `GridMatcher`.
    extra
        Levels more than eps asks for.
    epoch
        Number of the build, for fresh shifts.
    """

    def __init__(
        self, points: Float[np.ndarray, "n d"], norm: Real, eps: Real, project: Any, seed: int, extra: int, epoch: int
    ) -> None:
        n, dim = points.shape
        self.norm, self.seed, self.epoch = float(norm), seed, epoch
        self.projection: np.ndarray | None = None
        target = projected_dim(dim, n, project) if norm == 2.0 else 0
        if target:
            normals = np.random.default_rng([seed, 7]).standard_normal((dim, target))
            self.projection = normals / math.sqrt(target)
        seen = points if self.projection is None else points @ self.projection
        low = seen.min(axis=0)
        span = float((seen.max(axis=0) - low).max()) or 1.0
        self.branching = max(2, math.ceil(n**eps))
        self.levels = math.ceil(1 / eps) + extra
        self.leaf_side = max(2 * span / float(self.branching) ** self.levels, np.finfo(float).tiny)
        self.origin = low - np.random.default_rng([seed, epoch]).random(len(low)) * span
        self.offsets: list[Coordinates] = []

    @property
    def dim(self) -> int:
        """Dimensions that the cells see."""
        return len(self.origin)

    @property
    def height(self) -> int:
        """Height of the root; leaves have height 0."""
        return self.levels + len(self.offsets)

    @property
    def finest(self) -> bool:
        """Whether one more level would leave no exact coordinates."""
        return self.branching ** (self.levels + 1) > 2**52

    def row_of(self, x: Float[np.ndarray, " d"]) -> Float[np.ndarray, " e"]:
        """Return what the search sees of a point, followed by its true coordinates when that is a projection."""
        return x if self.projection is None else np.concatenate([x @ self.projection, x])

    def leaf_of(self, row: Float[np.ndarray, " e"]) -> Coordinates:
        """Return the leaf of a point."""
        scaled = (row[: self.dim] - self.origin) / self.leaf_side
        return tuple(math.floor(v) for v in scaled.tolist())

    def at(self, leaf: Coordinates, height: int) -> Coordinates:
        """Return the ancestor of a leaf."""
        step = self.branching ** min(height, self.levels)
        coordinates = tuple(c // step for c in leaf)
        for offset in self.offsets[: max(0, height - self.levels)]:
            coordinates = tuple((c + o) // self.branching for c, o in zip(coordinates, offset, strict=True))
        return coordinates

    def diameter(self, height: int) -> float:
        """Return the diameter of the children of a cell of this height."""
        side = self.leaf_side * float(self.branching) ** max(0, height - 1)
        return side * self.dim ** (0.0 if math.isinf(self.norm) else 1.0 / self.norm)

    def centre(self, height: int, coordinates: Coordinates) -> Float[np.ndarray, " d"]:
        """Return the centre of a cell of this height."""
        shift = np.zeros(self.dim)
        for level, offset in enumerate(self.offsets[: max(0, height - self.levels)]):
            step = self.leaf_side * float(self.branching) ** (self.levels + level)
            shift += np.array(offset, dtype=np.float64) * step
        side = self.leaf_side * float(self.branching) ** height
        return self.origin - shift + (np.array(coordinates, dtype=np.float64) + 0.5) * side

    def grow(self, top: Coordinates) -> None:
        """Put a root over the old one, towards the place ``top`` (in units of the old root) that it should cover."""
        rng = np.random.default_rng([self.seed, self.epoch, len(self.offsets)])
        last = self.branching - 1
        self.offsets.append(tuple(last if c < 0 else 0 if c > 0 else int(rng.integers(last + 1)) for c in top))

    def state(self) -> dict[str, Any]:
        """Return the layout as plain values."""
        return dict(vars(self))

    @staticmethod
    def from_state(state: dict[str, Any]) -> GridLayout:
        """Make the same layout again."""
        made = GridLayout.__new__(GridLayout)
        vars(made).update(state)
        return made


def projected_dim(dim: int, n: int, project: Any) -> int:
    """Return the dimensions of the random projection, 0 for none: a given number, or 4 log n for ``"auto"``.

    Raises
    ------
    ValueError
        A projection that is neither.
    """
    if project is None:
        return 0
    target = math.ceil(4 * math.log(max(n, 2))) if project == "auto" else int(project)
    if target < 1:
        raise ValueError(f"a projection needs at least one dimension, not {project}")
    return target if target < dim else 0
