"""BitEdit: guidance on single bits, kept inside a trust region around the plain sampler.

A bitwise autoregressive model predicts every bit by its own log-odds ``d``. This module pushes those log-odds away
from what the source prompt predicts, stops each push where the Bernoulli divergence from the unpushed prediction
reaches ``delta``, and samples the bits.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as nnf
from jaxtyping import Bool, Float
from torch import Tensor

from bitresedit.errors import BitResEditError

SOLVERS = ("exact", "bisect4")
# A Newton step below this leaves, by quadratic convergence, an error far below the promised 1e-7.
_STEP = 1e-7
_MAX_ITERATIONS = 80


def logodds(logits: Float[Tensor, "*bits 2"]) -> Float[Tensor, "*bits"]:
    """Turn two logits a bit into the log-odds of a one, ``d = l[1] - l[0]``.

    Parameters
    ----------
    logits
        ``[..., 2]``: the logits of the values 0 and 1, any float dtype.

    Returns
    -------
    Tensor
        ``[...]`` float32.

    References
    ----------
    Paper, section 3 (the per-bit Bernoulli head).
    """
    wide = logits.float()
    return wide[..., 1] - wide[..., 0]


def bernoulli_kl(p: Float[Tensor, "*bits"], q: Float[Tensor, "*bits"]) -> Float[Tensor, "*bits"]:
    r"""Give the divergence of two Bernoulli variables from their log-odds.

    ``KL(p || q) = sigma(p) (p - q) - softplus(p) + softplus(q)``.

    The formula is evaluated on the side where ``p <= 0`` (both signs are flipped otherwise, which changes nothing):
    there every term is as small as ``sigma(p)`` or ``softplus(q)``, so nothing large cancels and the value stays
    finite and accurate for log-odds of any size.

    Parameters
    ----------
    p, q
        Log-odds of the same shape and float dtype.

    Returns
    -------
    Tensor
        Divergence in nats, never negative.

    References
    ----------
    Paper, section 4.1 (trust region).
    """
    q = torch.where(p > 0, -q, q)
    p = -p.abs()
    # logsigmoid(-x) is -softplus(x), stable for every x.
    return (torch.sigmoid(p) * (p - q) + nnf.logsigmoid(-p) - nnf.logsigmoid(-q)).clamp_min(0.0)


def source_negative(
    d_cfg: Float[Tensor, "*bits"],
    d_target: Float[Tensor, "*bits"],
    d_source: Float[Tensor, "*bits"],
    inside: Bool[Tensor, "*region"],
    eta: float,
) -> Float[Tensor, "*bits"]:
    """Tilt the guided log-odds away from the source prompt: ``d_cfg - eta * inside * (d_S - d_T)``.

    Parameters
    ----------
    d_cfg
        Log-odds after classifier-free guidance, ``[..., bits]``.
    d_target, d_source
        Log-odds under the target prompt and the source prompt, on the same edited prefix.
    inside
        True where the edit region is; broadcast against the log-odds.
    eta
        Strength of the tilt at this scale.

    Returns
    -------
    Tensor
        ``d_raw``; exactly ``d_cfg`` outside the region and wherever ``eta`` is 0.

    References
    ----------
    Paper, section 4.1 (source-negative guidance).
    """
    if eta == 0:
        return d_cfg
    return torch.where(inside, d_cfg - eta * (d_source - d_target), d_cfg)


def trust_region(
    d_raw: Float[Tensor, "*bits"],
    d_ref: Float[Tensor, "*bits"],
    delta: float = 0.3,
    linf: float = 5.0,
    solver: str = "exact",
) -> tuple[Float[Tensor, "*bits"], Float[Tensor, "*bits"]]:
    """Move each bit from ``d_ref`` towards ``d_raw`` as far as the divergence allows.

    ``d = d_ref + a (d_raw - d_ref)`` with ``a`` the largest number in ``[0, 1]`` such that
    ``KL(d || d_ref) <= delta``; then ``d - d_ref`` is clipped to ``[-linf, linf]``. The divergence grows along the
    way, so ``a`` is unique. A bit that is nearly certain already, ``softplus(-d_ref) <= delta`` for a move upwards,
    cannot spend ``delta`` at all and is never limited.

    Parameters
    ----------
    d_raw, d_ref
        Wanted and reference log-odds, same shape, float dtype.
    delta
        Largest divergence per bit in nats; 0 gives ``d_ref``, ``math.inf`` switches the limit off.
    linf
        Largest change per bit in logits; ``math.inf`` switches the clip off.
    solver
        ``"exact"`` (safeguarded Newton in float64, 1e-7 in the logit) or ``"bisect4"`` (four bisections that keep
        the lower end, as the published code does: never beyond the exact step).

    Returns
    -------
    d, a
        The limited log-odds, and the fraction of the step that the divergence allowed (before the clip).

    Raises
    ------
    BitResEditError
        If ``delta`` or ``linf`` is negative or not a number, or the solver is unknown.

    References
    ----------
    Paper, section 4.1 (closed-form Bernoulli-KL trust region).
    """
    if not delta >= 0 or not linf >= 0:
        raise BitResEditError(f"delta and linf must be at least 0, got {delta} and {linf}")
    if solver not in SOLVERS:
        raise BitResEditError(f"unknown trust-region solver '{solver}'", "use exact or bisect4")
    if delta == 0:
        a = (d_raw == d_ref).to(d_ref.dtype)
        return d_ref.clone(), a
    if solver == "exact":
        d, a = _exact_step(d_raw, d_ref, delta)
    else:
        d, a = _bisected_step(d_raw, d_ref, delta)
    return torch.clamp(d, d_ref - linf, d_ref + linf), a


def sample_bits(
    d: Float[Tensor, "*bits"],
    tau: float = 1.0,
    top_p: float = 0.97,
    generator: torch.Generator | None = None,
) -> Bool[Tensor, "*bits"]:
    """Draw bits from ``Bernoulli(sigma(d / tau))`` with improbable values removed.

    A bit value of probability ``1 - top_p`` or less is never drawn; the more probable value always stays. One
    uniform number is used per bit whatever its probability, so two calls with the same seed are comparable.

    Parameters
    ----------
    d
        Log-odds of a one.
    tau
        Temperature, positive.
    top_p
        Kept probability mass in ``(0, 1]``; 1 keeps both values.
    generator
        Source of the draw. It may live on another device than ``d``: numbers are drawn on its device.

    Returns
    -------
    Tensor
        Bool, the shape of ``d``.

    Raises
    ------
    BitResEditError
        If ``tau`` or ``top_p`` is out of range.

    References
    ----------
    Paper, section 4.1; nucleus sampling as in the Infinity backbone.
    """
    if not tau > 0:
        raise BitResEditError(f"the temperature tau must be positive, got {tau}")
    if not 0 < top_p <= 1:
        raise BitResEditError(f"top_p must be in (0, 1], got {top_p}")
    device = d.device if generator is None else generator.device
    draw = torch.rand(d.shape, generator=generator, device=device).to(d.device)
    return draw < _truncated_probability(d, tau, top_p)


def _truncated_probability(d: Tensor, tau: float, top_p: float) -> Tensor:
    """Give the probability of a one after the improbable value of each bit is removed."""
    one, zero = torch.sigmoid(d / tau), torch.sigmoid(-d / tau)
    removed = 1 - top_p
    one = torch.where((zero <= removed) & (d >= 0), 1.0, one)
    return torch.where((one <= removed) & (d < 0), 0.0, one)


def _exact_step(d_raw: Tensor, d_ref: Tensor, delta: float) -> tuple[Tensor, Tensor]:
    """Solve the step to the boundary on those bits that would cross it, in float64."""
    limited = bernoulli_kl(d_raw, d_ref) > delta
    d, a = d_raw.clone(), torch.ones_like(d_ref)
    where = limited.nonzero(as_tuple=True)
    raw, ref = d_raw[where].double(), d_ref[where].double()
    if raw.numel():
        # Mirror downward moves: only "start at q, go up, at most to the wanted log-odds" remains.
        side = torch.sign(raw - ref)
        reached = side * _boundary(side * ref, side * raw, delta)
        d[where] = reached.to(d.dtype)
        a[where] = ((reached - ref) / (raw - ref)).to(a.dtype)
    return d, a


def _boundary(q: Tensor, top: Tensor, delta: float) -> Tensor:
    """Find ``p`` in ``[q, top]`` with ``KL(p || q) = delta``, given ``KL(top || q) > delta``; float64.

    Newton's method on ``log(KL / (S - KL))`` with ``S = softplus(-q)``, the divergence of a certain one. Both ends
    of that function are nearly linear in ``p``, so four or five steps reach the solution from the guess; a step that
    leaves the bracket is replaced by a bisection.
    """
    ceiling = -nnf.logsigmoid(q)
    goal = torch.log(delta / (ceiling - delta))
    low, high = q, top
    # The divergence is nearly 2 (angle difference)^2 in the variance-stabilising angle asin(sqrt(probability)).
    angle = torch.asin(torch.sigmoid(q).sqrt_()).add_(math.sqrt(delta / 2)).clamp_(max=math.pi / 2 - 1e-3)
    p = torch.clamp(2 * torch.log(torch.tan(angle)), low, high)
    for _ in range(_MAX_ITERATIONS):
        gap, one, zero = p - q, torch.sigmoid(p), torch.sigmoid(-p)
        rest = zero * gap - nnf.logsigmoid(p)  # S - KL, without the cancellation
        spent = ceiling - rest
        excess = torch.log(spent / rest) - goal
        over = excess > 0
        low, high = torch.where(over, low, p), torch.where(over, p, high)
        proposal = p - excess * spent * rest / (one * zero * gap * ceiling)
        proposal = torch.where((proposal >= low) & (proposal <= high), proposal, (low + high) / 2)
        step, p = (proposal - p).abs_().max(), proposal
        if step <= _STEP:
            break
    return p


def _bisected_step(d_raw: Tensor, d_ref: Tensor, delta: float) -> tuple[Tensor, Tensor]:
    """Take the full step if it is inside, else the lower end of four bisections of [0, 1]."""
    move = d_raw - d_ref
    inside = bernoulli_kl(d_raw, d_ref) <= delta
    low, high = torch.zeros_like(move), torch.ones_like(move)
    for _ in range(4):
        middle = (low + high) / 2
        fits = bernoulli_kl(d_ref + middle * move, d_ref) <= delta
        low, high = torch.where(fits, middle, low), torch.where(fits, high, middle)
    a = torch.where(inside, 1.0, low)
    return torch.where(inside, d_raw, d_ref + a * move), a


__all__ = ["bernoulli_kl", "logodds", "sample_bits", "source_negative", "trust_region"]
