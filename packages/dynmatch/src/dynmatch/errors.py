"""What can be wrong with a user's points, metric or sizes."""

from __future__ import annotations

from papers_shared.errors import InputError


class NotAMetricError(InputError):
    """A distance breaks symmetry, positivity or the triangle inequality; the message names the points (i, j, k)."""


class CapacityError(InputError):
    """A number is beyond what the arithmetic or the memory limit can hold."""


class UnequalSizesError(InputError):
    """A peer that matches sets of one size was given others."""
