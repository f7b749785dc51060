"""The grids that Infinity draws an image on, by shape of the image and by pixel budget.

A schedule is chosen by the ratio height / width and by a budget: ``0.06M`` keeps the first 7 grids of the
ratio's list of 13, ``0.25M`` 10, ``0.60M`` 12 and ``1M`` all. One cell of the last grid is 16 x 16 pixels.
"""

from __future__ import annotations

from dataclasses import dataclass

from bitresedit.errors import BitResEditError

STRIDE = 16
BUDGETS = {"0.06M": 7, "0.25M": 10, "0.60M": 12, "1M": 13}

_TALL: dict[float, str] = {
    1.0: "1x1 2x2 4x4 6x6 8x8 12x12 16x16 20x20 24x24 32x32 40x40 48x48 64x64",
    1.25: "1x1 2x2 3x3 5x4 10x8 15x12 20x16 25x20 30x24 35x28 45x36 55x44 70x56",
    1.333: "1x1 2x2 4x3 8x6 12x9 16x12 20x15 24x18 28x21 36x27 48x36 60x45 72x54",
    1.5: "1x1 2x2 3x2 6x4 9x6 15x10 21x14 27x18 33x22 39x26 48x32 63x42 78x52",
    1.75: "1x1 2x2 3x3 7x4 11x6 14x8 21x12 28x16 35x20 42x24 56x32 70x40 84x48",
    2.0: "1x1 2x2 4x2 6x3 10x5 16x8 22x11 30x15 38x19 46x23 60x30 74x37 90x45",
    2.5: "1x1 2x2 5x2 10x4 15x6 20x8 25x10 30x12 40x16 50x20 65x26 80x32 100x40",
    3.0: "1x1 2x2 6x2 9x3 15x5 21x7 27x9 36x12 45x15 54x18 72x24 90x30 111x37",
}


def _parse(grids: str) -> tuple[tuple[int, int], ...]:
    return tuple((int(h), int(w)) for h, w in (grid.split("x") for grid in grids.split()))


def _all_ratios() -> dict[float, tuple[tuple[int, int], ...]]:
    table = {}
    for ratio, text in _TALL.items():
        tall = _parse(text)
        table[ratio] = tall
        if ratio != 1.0:
            table[int(1000 / ratio) / 1000] = tuple((w, h) for h, w in tall)
    return table


GRIDS: dict[float, tuple[tuple[int, int], ...]] = _all_ratios()
"""Thirteen grids ``(rows, columns)`` for each ratio height / width."""


@dataclass(frozen=True)
class InfinitySchedule:
    """The grids of one image shape and budget.

    Parameters
    ----------
    ratio
        Height / width, one of :data:`GRIDS`.
    budget
        One of :data:`BUDGETS`.

    Raises
    ------
    BitResEditError
        If the ratio or the budget is not one that the model was trained on.
    """

    ratio: float = 1.0
    budget: str = "0.25M"

    def __post_init__(self) -> None:
        if self.budget not in BUDGETS:
            raise BitResEditError(f"pixel budget {self.budget!r} is unknown", f"use one of {', '.join(BUDGETS)}")
        if self.ratio not in GRIDS:
            known = ", ".join(f"{ratio:g}" for ratio in sorted(GRIDS))
            raise BitResEditError(f"height/width ratio {self.ratio:g} has no schedule", f"use one of {known}")

    @classmethod
    def for_image(cls, height: int, width: int, budget: str = "0.25M") -> InfinitySchedule:
        """Choose the schedule whose height / width is nearest to an image's, by absolute difference."""
        if height < 1 or width < 1:
            raise BitResEditError(f"an image of {width} x {height} pixels has no shape")
        return cls(min(GRIDS, key=lambda ratio: abs(ratio - height / width)), budget)

    @property
    def grids(self) -> list[tuple[int, int]]:
        """Grids ``(rows, columns)`` from coarse to fine."""
        return list(GRIDS[self.ratio][: BUDGETS[self.budget]])

    @property
    def image_size(self) -> tuple[int, int]:
        """Pixels ``(height, width)`` of the decoded image."""
        rows, columns = self.grids[-1]
        return STRIDE * rows, STRIDE * columns

    @property
    def tokens(self) -> int:
        """Tokens of all scales together."""
        return sum(h * w for h, w in self.grids)

    @property
    def reference(self) -> tuple[int, int]:
        """Grid whose cells are the rotary positions of all scales: the ratio's last at 1M, at every budget."""
        return GRIDS[self.ratio][-1]
