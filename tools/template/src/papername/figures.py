"""The picture of a run."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from papername.variance import Moments
from papers_shared.artifacts import figure_style


def draw_settling(path: Sequence[Moments]) -> Figure:
    r"""Draw the variance after each chunk and its standard error for normal values, :math:`s^2 \sqrt{2 / (n - 1)}`.

    Parameters
    ----------
    path
        The moments after each chunk, in order.

    Returns
    -------
    Figure
        Variance, in the values' unit squared, against the number of values.
    """
    seen = [moments for moments in path if moments.count > 1]
    count = np.array([moments.count for moments in seen])
    variance = np.array([moments.variance for moments in seen])
    error = variance * np.sqrt(2 / np.maximum(count - 1, 1))
    with figure_style():
        fig, ax = plt.subplots()
        ax.fill_between(count, variance - error, variance + error, alpha=0.2, label="standard error")
        ax.plot(count, variance, marker="o", label="variance so far")
        ax.set(xlabel="values read", ylabel="variance (unit of the values, squared)")
        ax.legend()
    return fig
