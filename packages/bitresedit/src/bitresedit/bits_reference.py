"""BitEdit one bit at a time, in the order and the notation of the paper's equations.

Slow and literal on purpose: plain Python numbers, a bisection to machine precision instead of Newton's method.
The tests hold :mod:`bitresedit.bits` to it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence


def logistic(x: float) -> float:
    """Give ``sigma(x) = 1 / (1 + exp(-x))``."""
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def softplus(x: float) -> float:
    """Give ``sp(x) = log(1 + exp(x))``."""
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


def kl(p: float, q: float) -> float:
    """Give ``KL(p || q) = sigma(p) (p - q) - sp(p) + sp(q)`` of two log-odds."""
    if p > 0:
        p, q = -p, -q
    return max(0.0, logistic(p) * (p - q) - softplus(p) + softplus(q))


def allowed_fraction(d_raw: float, d_ref: float, delta: float, solver: str = "exact") -> float:
    """Give the largest ``a`` in [0, 1] with ``KL(d_ref + a (d_raw - d_ref) || d_ref) <= delta``.

    ``"bisect4"`` stops after four bisections and keeps the lower end.
    """
    if d_raw == d_ref:
        return 1.0
    if delta == 0:
        return 0.0
    if kl(d_raw, d_ref) <= delta:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(4 if solver == "bisect4" else 60):
        middle = (low + high) / 2
        if kl(d_ref + middle * (d_raw - d_ref), d_ref) <= delta:
            low = middle
        else:
            high = middle
    return low


def edit_bit(
    d_target: float,
    d_null: float,
    d_source: float,
    inside: bool,
    cfg: float,
    eta: float,
    delta: float,
    linf: float,
    solver: str = "exact",
) -> tuple[float, float]:
    """Apply steps 1 to 4 of BitEdit to one bit: guidance, tilt, trust region, clip.

    Returns
    -------
    d, a
        The bit's log-odds and the fraction of the tilt that the trust region allowed.

    References
    ----------
    Paper, section 4.1.
    """
    d_cfg = d_target + (cfg - 1) * (d_target - d_null)
    if eta == 0 or not inside:
        return d_cfg, 1.0
    d_raw = d_cfg - eta * (d_source - d_target)
    a = allowed_fraction(d_raw, d_cfg, delta, solver)
    moved = a * (d_raw - d_cfg)
    return d_cfg + min(max(moved, -linf), linf), a


def draw_bit(d: float, uniform: float, tau: float, top_p: float) -> bool:
    """Apply step 5 to one bit: remove an improbable value, then compare with a uniform number."""
    one = logistic(d / tau)
    zero = 1 - one
    if one <= 1 - top_p and one < zero:
        one = 0.0
    elif zero <= 1 - top_p and zero <= one:
        one = 1.0
    return uniform < one


def tilt_schedule(eta: float, scales: int) -> Sequence[float]:
    """Give ``eta_k = eta (1 - k / (K - 1))`` for ``k = 0 .. K-1``: full at the coarsest scale, none at the last."""
    if scales == 1:
        return [0.0]
    return [eta * (1 - k / (scales - 1)) for k in range(scales)]
