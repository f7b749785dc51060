"""Which k to take: bias, sampling error and privacy noise against each other, from the public graph alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fixedgraphdp.bias import inclusion_probabilities, variation
from fixedgraphdp.bounding import bound
from fixedgraphdp.bounds import gaussian_sigma
from fixedgraphdp.graph import AttributionGraph
from papers_shared.errors import InputError


class Budget(NamedTuple):
    """One k and its three parts of the squared error of a d-dimensional mean, whose scale is ``sd0``."""

    k: int
    size: int
    kept_share: float
    cv: float
    bias_squared: float
    sampling: float
    noise: float

    @property
    def total(self) -> float:
        """The sum, which the choice minimises."""
        return self.bias_squared + self.sampling + self.noise


class Choice(NamedTuple):
    """The best k, all that were compared, and why in one sentence."""

    best: Budget
    rows: list[Budget]
    why: str


def choose_k(
    graph: AttributionGraph,
    epsilon: float,
    delta: float,
    d: int,
    *,
    ks: Sequence[int] | None = None,
    clip: float = 1.0,
    sd0: float = 1.0,
    order: str = "size",
    runs: int = 32,
    seed: int = 0,
) -> Choice:
    r"""Minimise the predicted squared error of a private mean over a grid of budgets.

    .. math:: (\mathrm{CV}(p_k)\, SD_0)^2 + \frac{SD_0^2\, d}{|S_k|} + \frac{(k\, C\, \sigma_\epsilon)^2 d}{|S_k|^2}

    Only the public graph is looked at, so the choice itself costs no privacy.

    Parameters
    ----------
    graph
        The hypergraph.
    epsilon, delta
        The privacy wanted, which sets :math:`\sigma_\epsilon`.
    d
        Dimension of the gradient or mean.
    ks
        Budgets to compare; by default powers of two and the largest degree.
    clip
        :math:`C`, in the unit of ``sd0``.
    sd0
        Prior guess of the spread of the contents.
    order, runs, seed
        Of the bounding, and of the estimate of CV(p).

    Raises
    ------
    InputError
        epsilon or delta out of range; d below 1.
    """
    if d < 1:
        raise InputError(f"the dimension must be at least 1, not {d}")
    sigma = gaussian_sigma(epsilon, delta)
    largest = max(1, int(graph.degrees.max(initial=1)))
    grid = sorted({min(2**i, largest) for i in range(largest.bit_length() + 1)}) if ks is None else sorted(set(ks))
    rows = []
    for k in grid:
        size = bound(graph, k, order=order).size
        p = inclusion_probabilities(graph, k, order=order, runs=runs, seed=seed) if k < largest else None
        cv = 0.0 if p is None else variation(p, runs)
        rows.append(
            Budget(
                k=int(k),
                size=size,
                kept_share=size / graph.n_examples,
                cv=cv,
                bias_squared=(cv * sd0) ** 2,
                sampling=sd0**2 * d / size,
                noise=(k * clip * sigma) ** 2 * d / size**2,
            )
        )
    best = min(rows, key=lambda row: row.total)
    return Choice(best, rows, _why(best, rows))


def _why(best: Budget, rows: list[Budget]) -> str:
    place = rows.index(best)
    parts = []
    if place > 0:
        less = rows[place - 1]
        what = "bias" if less.bias_squared - best.bias_squared > less.sampling - best.sampling else "sampling error"
        if less.noise - best.noise > max(less.bias_squared - best.bias_squared, less.sampling - best.sampling):
            what = "noise per kept example"
        parts.append(f"k={less.k} has {less.total / best.total - 1:.0%} more error, mostly through {what}")
    if place + 1 < len(rows):
        more = rows[place + 1]
        parts.append(f"k={more.k} has {more.total / best.total - 1:.0%} more, through privacy noise")
    kept = f"k={best.k} keeps {best.kept_share:.0%} of the examples"
    return f"{kept}; {'; '.join(parts)}" if parts else kept
