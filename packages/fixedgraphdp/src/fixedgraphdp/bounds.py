"""The analytic Gaussian mechanism, and the lower and upper bounds on error that the density sets."""

from __future__ import annotations

import math

from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr

from papers_shared.errors import InputError


def gaussian_delta(epsilon: float, mu: float) -> float:
    r"""Return the smallest delta of a Gaussian mechanism with sensitivity over noise ``mu``.

    .. math:: \delta(\epsilon) = \Phi(\mu/2 - \epsilon/\mu) - e^{\epsilon}\, \Phi(-\mu/2 - \epsilon/\mu)

    References
    ----------
    Balle and Wang, "Improving the Gaussian mechanism", ICML 2018, theorem 8.
    """
    if mu <= 0:
        return 0.0
    second = math.exp(min(epsilon + float(log_ndtr(-mu / 2 - epsilon / mu)), 700.0))
    return max(0.0, float(ndtr(mu / 2 - epsilon / mu)) - second)


def gaussian_epsilon(delta: float, mu: float) -> float:
    """Return the epsilon of a Gaussian mechanism with sensitivity over noise ``mu`` at ``delta``."""
    checked_delta(delta)
    if gaussian_delta(0.0, mu) <= delta:
        return 0.0
    high = 1.0
    while gaussian_delta(high, mu) > delta:
        high *= 2
    return float(brentq(lambda e: gaussian_delta(e, mu) - delta, 0.0, high, xtol=1e-12, rtol=1e-12))


def gaussian_sigma(epsilon: float, delta: float, sensitivity: float = 1.0) -> float:
    """Return the least noise, in the sensitivity's unit, that makes a Gaussian mechanism (epsilon, delta)-private.

    Raises
    ------
    InputError
        epsilon not positive, delta outside (0, 1).
    """
    checked_delta(delta)
    if not epsilon > 0:
        raise InputError(f"epsilon must be positive, not {epsilon}")
    low, high = 1e-6, 1.0
    while gaussian_delta(epsilon, 1 / high) > delta:
        high *= 2
    sigma = brentq(lambda s: gaussian_delta(epsilon, 1 / s) - delta, low, high, xtol=1e-12, rtol=1e-12)
    return float(sigma) * sensitivity


def lower(c: float | int, d: int, epsilon: float, n: int) -> float:
    r"""Return :math:`\min(1, c^2 d / (\epsilon^2 n^2))`, the least squared error of a mean in the unit ball.

    Take n/c disjoint users with c equal examples each: any fixed-graph private estimator is then user-level private on
    n/c records, each of weight c/n. Constants and logarithms are set to 1, so this is the shape, not a threshold.

    Parameters
    ----------
    c, d, epsilon, n
        Density, dimension, privacy, number of examples.
    """
    return min(1.0, c**2 * d / (epsilon**2 * n**2))


def upper(k: int, d: int, epsilon: float, delta: float, size: int) -> float:
    r"""Return :math:`k^2 d\, \sigma(\epsilon, \delta)^2 / |S_k|^2`, the noise of a mean over ``size`` bounded examples.

    :math:`\sigma` is `gaussian_sigma`: the Gaussian mechanism on the sum has sensitivity k in the unit ball.
    """
    return k**2 * d * gaussian_sigma(epsilon, delta) ** 2 / size**2


def checked_delta(delta: float) -> None:
    """Refuse a delta outside (0, 1).

    Raises
    ------
    InputError
        Saying so.
    """
    if not 0 < delta < 1:
        raise InputError(f"delta must lie in (0, 1), not {delta}", hint="take less than 1 / number of users, like 1e-5")
