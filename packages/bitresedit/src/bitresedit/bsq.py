"""Binary spherical quantisation, one scale at a time and as a residual pyramid.

A latent ``F`` of shape ``[d, H, W]`` is written as a sum of upsampled sign patterns: at scale ``k`` the residual
is averaged down to the grid ``(h_k, w_k)``, its signs are kept as bits, and the code of those bits is subtracted.
Everything an editor changes later is one of these bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as nnf
from jaxtyping import Bool, Float
from torch import Tensor, nn

Schedule = Sequence[tuple[int, int]]


def upsample(codes: Float[Tensor, "b d h w"], size: tuple[int, int]) -> Float[Tensor, "b d up_h up_w"]:
    """Interpolate a grid to ``size``: the operator ``U``, and the transformer's input resampler.

    Trilinear interpolation with a time axis of one, that is bilinear with ``align_corners=False``. It is also
    used to go *down* (the transformer's input ``e_k``), where it reads the nearest cells without averaging.
    A grid that already has the size is returned as it is, so no rounding enters.

    Parameters
    ----------
    codes
        Float tensor ``[B, d, h, w]``.
    size
        Target ``(rows, columns)``.

    Returns
    -------
    Tensor
        ``[B, d, rows, columns]``, same dtype.
    """
    if tuple(codes.shape[-2:]) == tuple(size):
        return codes
    return nnf.interpolate(codes, size=tuple(size), mode="bilinear", align_corners=False)


def downsample(latent: Float[Tensor, "b d h w"], size: tuple[int, int]) -> Float[Tensor, "b d down_h down_w"]:
    """Average a grid down to ``size``: the operator ``D`` (``area`` interpolation, adaptive mean pooling).

    Shapes are those of :func:`upsample`, and a grid of that size is returned as it is too.
    """
    same = tuple(latent.shape[-2:]) == tuple(size)
    return latent if same else nnf.interpolate(latent, size=tuple(size), mode="area")


class BSQ(nn.Module):
    """Binary spherical quantiser: bits on the corners of the unit sphere's inscribed cube.

    ``q(b) = (2 b - 1) / sqrt(d)``, so every code has norm 1.

    Parameters
    ----------
    d
        Number of bits of one code.
    """

    def __init__(self, d: int) -> None:
        super().__init__()
        if d < 1:
            raise ValueError("a code needs at least one bit")
        self.d = d

    def codes(self, bits: Bool[Tensor, "b h w d"]) -> Float[Tensor, "b d h w"]:
        """Give the unit codes of bits, float32, channels first.

        Parameters
        ----------
        bits
            Bool tensor ``[B, h, w, d]``.

        Returns
        -------
        Tensor
            ``[B, d, h, w]`` with entries ``+-1/sqrt(d)``.
        """
        if bits.shape[-1] != self.d:
            raise ValueError(f"expected {self.d} bits a code, got {bits.shape[-1]}")
        amplitude = self.d**-0.5
        return torch.where(bits, amplitude, -amplitude).to(torch.float32).permute(0, 3, 1, 2)

    def bits(self, latent: Float[Tensor, "b d h w"]) -> Bool[Tensor, "b h w d"]:
        """Give the bits of the nearest code: the signs of the normalised latent.

        ``b = 1[z / ||z|| > 0]``; the norm is positive, so it never changes a sign and is not computed.

        Parameters
        ----------
        latent
            Float tensor ``[B, d, h, w]``.

        Returns
        -------
        Tensor
            Bool ``[B, h, w, d]``.
        """
        return (latent > 0).permute(0, 2, 3, 1)


class NoisyEncoding(NamedTuple):
    """What bitwise self-correction trains on: ``targets[k]`` and the sum of codes *before* each scale."""

    targets: list[Tensor]
    prefixes: list[Tensor]


class MultiScaleBSQ(nn.Module):
    """Residual pyramid of binary spherical codes over a schedule of grids.

    With ``q_k = gain_k * q(b_k)``: ``R_0 = F``, ``b_k = 1[D(R_k) > 0]``, ``R_{k+1} = R_k - U(q_k)`` and
    ``F_hat = sum_k U(q_k)``, so ``F - F_hat`` is the last residual.

    Parameters
    ----------
    schedule
        Grids ``(rows, columns)`` from coarse to fine; the last one is the latent's own grid. A grid may repeat.
    d
        Bits of one code.
    gains
        One positive factor a scale; the published models use 1 everywhere (the default).

    References
    ----------
    Paper, section 3 (bitwise residual autoregression).
    """

    gains: Tensor

    def __init__(self, schedule: Schedule, d: int, gains: Sequence[float] | Tensor | None = None) -> None:
        super().__init__()
        self.schedule = [(int(h), int(w)) for h, w in schedule]
        if not self.schedule:
            raise ValueError("a schedule needs at least one grid")
        values = torch.ones(len(self.schedule)) if gains is None else torch.as_tensor(gains).float().clone()
        if values.shape != (len(self.schedule),):
            raise ValueError(f"{len(self.schedule)} scales need as many gains, got {tuple(values.shape)}")
        self.quantiser = BSQ(d)
        self.register_buffer("gains", values)

    @property
    def d(self) -> int:
        """Bits of one code."""
        return self.quantiser.d

    @property
    def grid(self) -> tuple[int, int]:
        """The latent's grid: the last scale's."""
        return self.schedule[-1]

    def codes(self, bits: Bool[Tensor, "b h w d"], k: int) -> Float[Tensor, "b d h w"]:
        """Give scale ``k``'s codes ``gain_k * q(b)`` on its own grid."""
        return self.gains[k] * self.quantiser.codes(bits)

    def upsampled(self, bits: Bool[Tensor, "b h w d"], k: int) -> Float[Tensor, "b d H W"]:
        """Give scale ``k``'s term of the sum, ``U(gain_k * q(b))``, on the latent's grid."""
        return upsample(self.codes(bits, k), self.grid)

    def encode(self, latent: Float[Tensor, "b d H W"]) -> list[Tensor]:
        """Quantise a latent into one bool tensor ``[B, h_k, w_k, d]`` a scale.

        Parameters
        ----------
        latent
            Float tensor ``[B, d, H, W]`` on the last scale's grid.

        Returns
        -------
        list of Tensor
            Bits, coarse to fine.
        """
        self._check(latent)
        residual, bits = latent, []
        for k, size in enumerate(self.schedule):
            bits.append(self.quantiser.bits(downsample(residual, size)))
            residual = residual - self.upsampled(bits[k], k)
        return bits

    def encode_with_flips(
        self,
        latent: Float[Tensor, "b d H W"],
        rate: Float[Tensor, " b"],
        generator: torch.Generator | None = None,
    ) -> NoisyEncoding:
        """Quantise a latent while flipping bits, so that later scales' targets repair earlier errors.

        Bitwise self-correction: the target of scale ``k`` is ``1[D(R_k) > 0]``, but the code subtracted is that
        of bits flipped with probability ``rate``; the next target is computed from the residual that remains.

        Parameters
        ----------
        latent
            ``[B, d, H, W]``.
        rate
            ``[B]``, flip probability of each image's bits.
        generator
            Source of the flips.

        Returns
        -------
        NoisyEncoding
            ``targets`` (bool, one a scale) and ``prefixes``: the noisy sum before each scale, ``[B, d, H, W]``.
        """
        self._check(latent)
        total, targets, prefixes = torch.zeros_like(latent), [], []
        for k, size in enumerate(self.schedule):
            prefixes.append(total)
            target = self.quantiser.bits(downsample(latent - total, size))
            draw = torch.rand(target.shape, generator=generator, device=latent.device)
            total = total + self.upsampled(target ^ (draw < rate[:, None, None, None]), k)
            targets.append(target)
        return NoisyEncoding(targets, prefixes)

    def sum(self, bits: Sequence[Tensor]) -> Float[Tensor, "b d H W"]:
        """Rebuild ``F_hat = sum_k U(gain_k * q(b_k))`` from the first ``len(bits)`` scales.

        Parameters
        ----------
        bits
            Bool tensors ``[B, h_k, w_k, d]``, coarse to fine; a prefix of the schedule gives the partial sum.

        Returns
        -------
        Tensor
            ``[B, d, H, W]`` float32.
        """
        if not 1 <= len(bits) <= len(self.schedule):
            raise ValueError(f"expected 1 to {len(self.schedule)} scales of bits, got {len(bits)}")
        total = self.upsampled(bits[0], 0)
        for k, scale in enumerate(bits[1:], start=1):
            total = total + self.upsampled(scale, k)
        return total

    def straight_through(self, latent: Float[Tensor, "b d H W"]) -> Float[Tensor, "b d H W"]:
        """Quantise with the identity as gradient: value ``F_hat``, derivative that of ``latent``."""
        with torch.no_grad():
            quantised = self.sum(self.encode(latent))
        return latent + (quantised - latent).detach()

    def _check(self, latent: Tensor) -> None:
        if tuple(latent.shape[1:]) != (self.d, *self.grid):
            raise ValueError(
                f"expected a latent [B, {self.d}, {self.grid[0]}, {self.grid[1]}], got {list(latent.shape)}"
            )
