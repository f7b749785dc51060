"""The definition, in exact rational arithmetic: slow, and right by inspection. Tests hold ``variance`` to it."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from jaxtyping import Float


def exact_variance(values: Float[np.ndarray, " n"]) -> float:
    r"""Return :math:`\sum_i (x_i - m)^2 / (n - 1)`, rounded once at the end."""
    exact = [Fraction(v) for v in values.tolist()]
    mean = sum(exact, Fraction(0)) / len(exact)
    return float(sum(((v - mean) ** 2 for v in exact), Fraction(0)) / (len(exact) - 1))
