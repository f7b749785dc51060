r"""User-level accounting on a fixed graph: what T steps of Poisson-sampled DP-SGD on a k-bounded set cost one user.

A user's k examples are each in the batch with probability q, independently, so the clipped sum shifts by a
:math:`\mathrm{Binomial}(k, q)` number of clip norms: the mixture-of-Gaussians mechanism of ``dp_accounting``.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
from dp_accounting.pld import pld_pmf
from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution
from dp_accounting.pld.privacy_loss_mechanism import AdjacencyType, MixtureGaussianPrivacyLoss
from jaxtyping import Float, Int
from scipy.optimize import brentq
from scipy.stats import binom

from fixedgraphdp.bounds import checked_delta, gaussian_delta, gaussian_epsilon
from fixedgraphdp.errors import BudgetError
from papers_shared.artifacts import read_json, write_json
from papers_shared.errors import InputError

Adjacency = Literal["zero-out", "replace"]
REPORTED, SEARCH = 1e-4, 1e-3
"""Loss grids: of the epsilon that is reported, and of the search for a noise multiplier. Both round upwards."""
LARGEST_EPSILON = 1000.0
"""Noise is not searched for a larger epsilon, under which a user's contents may as well be published."""
GRID = 2_000_000
"""Most points of a loss grid. With hardly any noise losses reach thousands, and the grid widens instead of growing."""


def epsilon(
    k: int, q: float, sigma: float, steps: int, delta: float, adjacency: str = "zero-out", *, interval: float = REPORTED
) -> float:
    r"""Return the user-level epsilon of ``steps`` noisy sums of clipped gradients.

    ``zero-out``: neighbouring data differ in one user's examples, which are null in one of them; the privacy loss is
    that of :math:`\sum_j \mathrm{Bin}(j; k, q)\, N(j, \sigma^2)` against :math:`N(0, \sigma^2)`, T-fold.
    ``replace``: they are swapped for others; through the zeroed data set,
    :math:`\epsilon = 2\epsilon_0` with :math:`(1 + e^{\epsilon_0})\, \delta_0(\epsilon_0) = \delta`. (A doubled
    sensitivity is no bound for k >= 2.) At q = 1 both are the Gaussian mechanism, of sensitivity k and 2k.

    Parameters
    ----------
    k
        The most examples of one user in the training set; 0 costs nothing.
    q
        Probability with which each example enters a batch, in (0, 1].
    sigma
        Noise multiplier: standard deviation over clip norm.
    steps
        Number of batches, :math:`T`.
    delta
        In (0, 1).
    adjacency
        ``"zero-out"`` or ``"replace"``.
    interval
        Grid of the privacy loss, wider where losses are so large that it would exceed `GRID` points; the result is an
        upper bound at any.

    Returns
    -------
    float
        At least the true epsilon; infinite if no epsilon has this delta.

    Raises
    ------
    InputError
        A parameter outside its range.
    """
    _check(k, q, sigma, steps, adjacency)
    checked_delta(delta)
    if k == 0:
        return 0.0
    double = 2 if adjacency == "replace" else 1
    if q == 1:
        return gaussian_epsilon(delta, double * k * np.sqrt(steps) / sigma)
    settings = ["epsilon", k, q, sigma, steps, delta, adjacency, interval]

    def compute() -> float:
        spent = composed(k, q, sigma, steps, interval=interval)
        if adjacency == "zero-out":
            return float(spent.get_epsilon_for_delta(delta))
        return _through_zero(spent, delta)

    return _cached(settings, compute)


def delta_of(k: int, q: float, sigma: float, steps: int, epsilon: float, *, interval: float = REPORTED) -> float:
    """Return the delta at a given epsilon under ``zero-out``; parameters as in `epsilon`."""
    _check(k, q, sigma, steps, "zero-out")
    if k == 0:
        return 0.0
    if q == 1:
        return gaussian_delta(epsilon, k * np.sqrt(steps) / sigma)
    return float(composed(k, q, sigma, steps, interval=interval).get_delta_for_epsilon(epsilon))


def noise_multiplier(
    epsilon_target: float, k: int, q: float, steps: int, delta: float, adjacency: str = "zero-out"
) -> float:
    """Return the least noise multiplier, to a relative 1e-4, whose `epsilon` is at most ``epsilon_target``.

    Raises
    ------
    BudgetError
        No noise up to 10,000 k meets the budget.
    InputError
        A parameter outside its range; an epsilon above `LARGEST_EPSILON`.
    """
    _check(k, q, 1.0, steps, adjacency)
    checked_delta(delta)
    if not epsilon_target > 0:
        raise BudgetError(f"epsilon must be positive, not {epsilon_target}", hint="no finite noise gives epsilon 0")
    if epsilon_target > LARGEST_EPSILON:
        raise InputError(f"epsilon {epsilon_target:g} protects nobody", hint=f"give at most {LARGEST_EPSILON:g}")
    if k == 0:
        raise InputError("k is 0: nobody is protected, and no noise is needed")

    def excess(log_sigma: float) -> float:
        spent = epsilon(k, q, float(np.exp(log_sigma)), steps, delta, adjacency, interval=SEARCH)
        return min(spent, 1e6) - epsilon_target

    def search() -> float:
        """Bracket the root in the logarithm of sigma, find it, and stay on its private side."""
        low = high = float(np.log(max(1.0, k * q * np.sqrt(steps) / epsilon_target)))
        while excess(high) > 0:
            high += 0.7
            if high > np.log(1e4 * k):
                raise BudgetError(f"no noise multiplier up to {1e4 * k:g} gives epsilon {epsilon_target}")
        while excess(low) <= 0:
            high, low = low, low - 0.35
            if low < np.log(1e-3):
                break
        root = brentq(excess, low, high, xtol=2e-5, rtol=1e-9) if excess(low) > 0 else low
        while excess(root) > 0:
            root += 2e-5
        return float(np.exp(root))

    return _cached(["sigma", epsilon_target, k, q, steps, delta, adjacency, SEARCH], search)


def epsilon_profile(
    degrees: Int[np.ndarray, " v"],
    q: float,
    sigma: float,
    steps: int,
    delta: float,
    adjacency: str = "zero-out",
) -> Float[np.ndarray, " v"]:
    """Return each user's own epsilon, at the number of examples the user really has in the training set.

    The set is public, so the profile is too; its maximum is the guarantee for everybody.
    """
    distinct, place = np.unique(degrees, return_inverse=True)
    spent = [epsilon(int(k), q, sigma, steps, delta, adjacency, interval=SEARCH) for k in distinct]
    return np.array(spent, float)[place]


def composed(k: int, q: float, sigma: float, steps: int, *, interval: float = REPORTED) -> PrivacyLossDistribution:
    """Return the privacy loss distribution of ``steps`` batches, both ways of ``zero-out``, rounded upwards."""
    counts = np.arange(k + 1)
    largest = k**2 / (2 * sigma**2) + 8 * k / sigma  # of one batch, but for a chance of 1e-15
    interval = max(interval, 2 * largest / GRID)
    return mixture_pld(sigma, counts.astype(float), binom.pmf(counts, k, q), interval).self_compose(steps)


def mixture_pld(
    sigma: float, sensitivities: Float[np.ndarray, " m"], probabilities: Float[np.ndarray, " m"], interval: float
) -> PrivacyLossDistribution:
    """Return ``dp_accounting``'s mixture-of-Gaussians distribution, with its losses inverted all at once.

    ``from_mixture_gaussian_mechanism`` searches each of up to a million losses on its own, which takes minutes; the
    connect-the-dots rounding is the library's.
    """

    def one_way(adjacency: AdjacencyType) -> pld_pmf.PLDPmf:
        """Round the loss of one of the two directions to the grid."""
        loss = _MixtureLoss(sigma, sensitivities.tolist(), probabilities.tolist(), adjacency_type=adjacency)
        ends = loss.connect_dots_bounds()
        low = int(np.floor(float(ends.epsilon_lower or 0.0) / interval))
        high = int(np.ceil(float(ends.epsilon_upper or 0.0) / interval))
        deltas = loss.get_delta_for_epsilon((np.arange(low, high + 1) * interval).tolist())
        return pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(interval, low, high, deltas)

    return PrivacyLossDistribution(one_way(AdjacencyType.REMOVE), one_way(AdjacencyType.ADD))


class _MixtureLoss(MixtureGaussianPrivacyLoss):
    r"""The library's loss, where all inverses are found together by Newton's method.

    With :math:`h(u) = \ln \sum_i p_i e^{(2 u s_i - s_i^2) / 2\sigma^2}`, which is convex and increasing, the loss at x
    is :math:`h(-x)` (remove) or :math:`-h(x)` (add). Started right of the root, Newton's steps only fall.
    """

    def inverse_privacy_losses(self, privacy_losses: Any, precision: float = 1e-6) -> np.ndarray:
        """Return the points whose losses these are, far closer than ``precision``."""
        sign = -1.0 if self.adjacency_type == AdjacencyType.REMOVE else 1.0
        return sign * self._solve(-sign * np.asarray(privacy_losses, float))

    def _log_moment(self, u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return h and its derivative."""
        s, var = self.sensitivities, self._variance
        exponents = (2 * np.multiply.outer(u, s) - s**2) / (2 * var) + self._log_sampling_probs
        top = exponents.max(axis=1)
        exponents -= top[:, None]
        np.exp(exponents, out=exponents)
        total = exponents.sum(axis=1)
        return top + np.log(total), exponents @ s / (total * var)

    def _solve(self, targets: np.ndarray) -> np.ndarray:
        if not targets.size:
            return targets
        s, p, var = self._max_sens, self._log_sampling_probs[np.argmax(self.sensitivities)], self._variance
        left = -60 * np.sqrt(var) - s
        right = max(var * (targets.max() - p) / s + s, left + 1.0)
        grid = np.linspace(left, right, 4000)
        heights, _ = self._log_moment(grid)
        out = np.empty(len(targets))
        for part in np.array_split(np.arange(len(targets)), 1 + len(targets) * len(self.sensitivities) // 4_000_000):
            goal = targets[part]
            u = grid[np.minimum(np.searchsorted(heights, goal), len(grid) - 1)]
            for _ in range(60):
                value, slope = self._log_moment(u)
                step = (value - goal) / np.maximum(slope, 1e-300)
                u = np.maximum(u - step, left)
                if np.max(np.abs(step) * (u > left), initial=0.0) <= 1e-11 * (1 + np.abs(u).max()):
                    break
            out[part] = u
        return out


def _through_zero(spent: PrivacyLossDistribution, delta: float) -> float:
    r"""Solve :math:`(1 + e^{\epsilon_0}) \delta_0(\epsilon_0) = \delta` and double."""

    def excess(half: float) -> float:
        return (1 + np.exp(min(half, 700.0))) * float(spent.get_delta_for_epsilon(half)) - delta

    if excess(0.0) <= 0:
        return 0.0
    high = 0.5
    while excess(high) > 0:
        high *= 2
        if high > 700:
            return float("inf")
    low = 0.0
    while high - low > 1e-7 * (1 + high):  # keep the end that meets delta, so the answer stays an upper bound
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return 2 * high


def _check(k: int, q: float, sigma: float, steps: int, adjacency: str) -> None:
    if k != int(k) or k < 0:
        raise InputError(f"k must be a whole number of at least 0, not {k}")
    if not 0 < q <= 1:
        raise InputError(f"the sampling rate q must lie in (0, 1], not {q}")
    if not 0 < sigma < np.inf:
        raise InputError(f"the noise multiplier must be positive and finite, not {sigma}")
    if steps < 1:
        raise InputError(f"steps must be at least 1, not {steps}")
    if adjacency not in ("zero-out", "replace"):
        raise InputError(f"unknown adjacency {adjacency!r}", hint="choose zero-out or replace")


def _cached(settings: list[Any], compute: Callable[[], float]) -> float:
    """Keep a result on disk: the same settings are asked for again and again, and take seconds."""
    default = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "fixedgraphdp"
    folder = Path(os.environ.get("FIXEDGRAPHDP_CACHE", default))
    name = hashlib.sha256(repr([importlib.metadata.version("dp-accounting"), *settings]).encode()).hexdigest()[:24]
    path = folder / f"{name}.json"
    try:
        return float(read_json(path)["value"])
    except (ValueError, KeyError, TypeError):
        value = compute()
    if np.isfinite(value):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            write_json(path, {"settings": settings, "value": value})
        except (OSError, InputError):  # a read-only home only costs the repetition
            return value
    return value
