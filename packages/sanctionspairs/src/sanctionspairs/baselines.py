"""What the method is compared with: the textbook's one-pass sum of squares, and NumPy's two passes."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float


def sum_of_squares(values: Float[np.ndarray, " n"]) -> float:
    r"""One pass, :math:`(\sum x_i^2 - n m^2) / (n - 1)`: two large numbers cancel when the mean is large."""
    total, squares = float(np.sum(values)), float(np.sum(values**2))
    count = len(values)
    return (squares - total**2 / count) / (count - 1)


def two_pass(values: Float[np.ndarray, " n"]) -> float:
    """Return NumPy's variance, which needs all values at once."""
    return float(np.var(values, ddof=1))


METHODS = {"sum of squares": sum_of_squares, "two passes": two_pass}
