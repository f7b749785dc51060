"""Image tokenizer of the bundled scene model: linear maps fitted in closed form, small CNNs beside them.

The encoder is the principal components of image patches, rotated at random so that every sign carries the same
information; the decoder is a 3x3 convolution fitted by ridge regression on the quantised codes. Both already
reconstruct scenes well; two residual CNNs that start at zero then learn what the linear maps cannot say.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as nnf
from jaxtyping import Float
from torch import Tensor, nn

from bitresedit.bsq import MultiScaleBSQ, downsample, upsample


@dataclass(frozen=True)
class TokenizerConfig:
    """Shape of a :class:`SceneTokenizer`.

    Parameters
    ----------
    image_size
        Width and height of the pictures (pixels).
    patch
        Pixels of one latent cell, a multiple of 4.
    d
        Bits of a code.
    schedule
        Grids, coarse to fine; the last is ``image_size / patch``.
    widths
        Channels of the residual CNNs at 4, 2 and 1 times the latent's resolution.
    encoder_blocks, decoder_blocks, refine_blocks
        Residual blocks: at each resolution of the encoder, at the two coarse ones of the decoder, at its finest.
    """

    image_size: int = 96
    patch: int = 12
    d: int = 48
    schedule: tuple[tuple[int, int], ...] = ((1, 1), (2, 2), (4, 4), (8, 8), (8, 8), (8, 8))
    widths: tuple[int, int, int] = (48, 64, 96)
    encoder_blocks: int = 1
    decoder_blocks: int = 2
    refine_blocks: int = 3


class ChannelNorm(nn.Module):
    """Layer norm over the channels of each pixel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(channels)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise ``[B, C, H, W]`` over ``C``."""
        return self.norm(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ResidualBlock(nn.Module):
    """``x + conv(gelu(conv(norm(x))))`` with 3x3 convolutions; the second starts at zero."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = ChannelNorm(channels)
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)
        nn.init.zeros_(self.conv2.weight)
        nn.init.zeros_(self.conv2.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``[B, C, H, W]`` to the same shape."""
        return x + self.conv2(nnf.gelu(self.conv1(self.norm(x)), approximate="tanh"))


def _blocks(channels: int, count: int) -> list[nn.Module]:
    return [ResidualBlock(channels) for _ in range(count)]


class SceneTokenizer(nn.Module):
    """Pictures to latents and back, with the multi-scale quantiser between.

    Parameters
    ----------
    config
        Sizes.
    """

    def __init__(self, config: TokenizerConfig = TokenizerConfig()) -> None:
        super().__init__()
        if config.patch % 4 or config.image_size % config.patch:
            raise ValueError("patch must be a multiple of 4 and divide image_size")
        cells = config.image_size // config.patch
        if tuple(config.schedule[-1]) != (cells, cells):
            raise ValueError(f"the last scale must be {cells} x {cells}")
        self.config = config
        self.bsq = MultiScaleBSQ(config.schedule, config.d)
        unshuffle, (wide, middle, narrow) = config.patch // 4, config.widths
        pixels = 3 * config.patch**2
        self.linear_encoder = nn.Conv2d(3, config.d, config.patch, stride=config.patch)
        self.linear_decoder = nn.Conv2d(config.d, pixels, 3, padding=1)
        self.encoder = nn.Sequential(
            nn.PixelUnshuffle(unshuffle),
            nn.Conv2d(3 * unshuffle**2, wide, 3, padding=1),
            *_blocks(wide, config.encoder_blocks),
            nn.Conv2d(wide, middle, 2, stride=2),
            *_blocks(middle, config.encoder_blocks),
            nn.Conv2d(middle, narrow, 2, stride=2),
            *_blocks(narrow, config.encoder_blocks),
            ChannelNorm(narrow),
            nn.Conv2d(narrow, config.d, 3, padding=1),
        )
        fine = 3 * unshuffle**2
        self.rough = nn.Sequential(nn.PixelUnshuffle(unshuffle), nn.Conv2d(fine, wide, 3, padding=1))
        self.decoder = nn.Sequential(
            nn.Conv2d(config.d, narrow, 3, padding=1),
            *_blocks(narrow, config.decoder_blocks),
            nn.ConvTranspose2d(narrow, middle, 2, stride=2),
            *_blocks(middle, config.decoder_blocks),
            nn.ConvTranspose2d(middle, wide, 2, stride=2),
        )
        self.refine = nn.Sequential(
            *_blocks(wide, config.refine_blocks),
            ChannelNorm(wide),
            nn.Conv2d(wide, fine, 3, padding=1),
            nn.PixelShuffle(unshuffle),
        )
        for last in (self.encoder[-1], self.refine[-2]):
            nn.init.zeros_(last.weight)
            nn.init.zeros_(last.bias)

    def encode(self, image: Float[Tensor, "b 3 size size"]) -> Float[Tensor, "b d h w"]:
        """Give the latent ``F`` of pictures, before quantisation.

        Parameters
        ----------
        image
            RGB in [-1, 1], ``[B, 3, image_size, image_size]``.

        Returns
        -------
        Tensor
            ``[B, d, h, w]`` float32.
        """
        return (self.linear_encoder(image).float() + self.encoder(image).float()).contiguous()

    def reconstruct(self, latent: Float[Tensor, "b d h w"]) -> Float[Tensor, "b 3 size size"]:
        """Decode without clamping to [-1, 1], as training needs."""
        linear = nnf.pixel_shuffle(self.linear_decoder(latent).float(), self.config.patch)
        # The CNN sees the linear picture too: most of its work is to take the quantisation noise out of it.
        return linear + self.refine(self.decoder(latent) + self.rough(linear)).float()

    def decode(self, latent: Float[Tensor, "b d h w"]) -> Float[Tensor, "b 3 size size"]:
        """Give the pictures of (quantised) latents, RGB in [-1, 1]."""
        return self.reconstruct(latent).clamp(-1, 1)

    def forward(self, image: Float[Tensor, "b 3 size size"]) -> Float[Tensor, "b 3 size size"]:
        """Encode, quantise with straight-through gradients, decode without clamping."""
        return self.reconstruct(self.bsq.straight_through(self.encode(image)))


@torch.no_grad()
def closed_form_start(
    tokenizer: SceneTokenizer,
    images: Float[Tensor, "n 3 size size"],
    generator: torch.Generator,
    norm: float = 2.5,
    ridge: float = 1e-3,
) -> None:
    """Fit both linear maps and the gains of a tokenizer without gradient descent.

    1. Encoder: the top ``d`` principal components of patches, times a random rotation, scaled to a mean norm.
    2. Gains, one scale after another: ``g_k = <R, U(q_k)> / <U(q_k), U(q_k)>`` on the residuals ``R``.
    3. Decoder: ridge regression from 3x3 neighbourhoods of quantised codes to patches.

    Parameters
    ----------
    tokenizer
        Changed in place.
    images
        Training pictures in [-1, 1].
    generator
        Source of the rotation.
    norm
        Mean Euclidean norm of a latent cell.
    ridge
        Ridge penalty over the mean feature variance.
    """
    config = tokenizer.config
    patches = nnf.pixel_unshuffle(images, config.patch).permute(0, 2, 3, 1).flatten(0, 2)
    mean = patches.mean(0)
    centred = patches - mean
    components = torch.linalg.eigh(centred.T @ centred / len(centred)).eigenvectors[:, -config.d :]
    rotation = torch.linalg.qr(torch.randn(config.d, config.d, generator=generator)).Q
    project = components @ rotation
    project = project * (norm / (centred @ project).norm(dim=1).mean())
    # pixel_unshuffle orders a patch as (channel, row, column), like the weights of a strided convolution.
    tokenizer.linear_encoder.weight.copy_(project.T.reshape(tokenizer.linear_encoder.weight.shape))
    tokenizer.linear_encoder.bias.copy_(-(mean @ project))
    latent = tokenizer.linear_encoder(images)
    fit_gains(tokenizer.bsq, latent)
    _fit_decoder(tokenizer, tokenizer.bsq.sum(tokenizer.bsq.encode(latent)), patches, ridge)


@torch.no_grad()
def fit_gains(bsq: MultiScaleBSQ, latent: Float[Tensor, "n d h w"]) -> None:
    """Set each scale's gain to the least-squares factor of its upsampled unit codes, coarse to fine."""
    residual = latent
    for k, size in enumerate(bsq.schedule):
        unit = upsample(bsq.quantiser.codes(bsq.quantiser.bits(downsample(residual, size))), bsq.grid)
        bsq.gains[k] = (residual * unit).sum() / (unit * unit).sum()
        residual = residual - bsq.gains[k] * unit


def _fit_decoder(tokenizer: SceneTokenizer, codes: Tensor, patches: Tensor, ridge: float) -> None:
    features = nnf.unfold(codes, 3, padding=1).transpose(1, 2).flatten(0, 1)
    features = torch.cat([features, torch.ones(len(features), 1)], dim=1)
    gram = features.T @ features
    gram.diagonal()[:-1].add_(ridge * gram.diagonal()[:-1].mean())
    solution = torch.linalg.solve(gram.double(), (features.T @ patches).double()).float()
    tokenizer.linear_decoder.weight.copy_(solution[:-1].T.reshape(tokenizer.linear_decoder.weight.shape))
    tokenizer.linear_decoder.bias.copy_(solution[-1])


def _moving_average(length: int, window: int) -> Tensor:
    # Two small matrix products are four times faster than average pooling with stride 1.
    first = torch.arange(length - window + 1)[:, None]
    place = torch.arange(length)[None]
    return ((place >= first) & (place < first + window)).float() / window


def ssim(a: Float[Tensor, "b c h w"], b: Float[Tensor, "b c h w"], window: int = 7) -> Float[Tensor, ""]:
    """Mean structural similarity of pictures in [-1, 1], differentiable.

    Uniform windows without padding and unbiased covariances, as scikit-image's default.

    Parameters
    ----------
    a, b
        Pictures of one shape, data range 2.
    window
        Side of the square window (pixels).

    Returns
    -------
    Tensor
        Scalar in [-1, 1].
    """
    c1, c2 = (0.01 * 2) ** 2, (0.03 * 2) ** 2
    count = window * window
    rows, columns = (_moving_average(n, window).to(a) for n in a.shape[-2:])

    def mean(x: Tensor) -> Tensor:
        return rows @ x @ columns.T

    mean_a, mean_b = mean(a), mean(b)
    unbias = count / (count - 1)
    var_a = (mean(a * a) - mean_a * mean_a) * unbias
    var_b = (mean(b * b) - mean_b * mean_b) * unbias
    cov = (mean(a * b) - mean_a * mean_b) * unbias
    luminance = (2 * mean_a * mean_b + c1) / (mean_a**2 + mean_b**2 + c1)
    return (luminance * (2 * cov + c2) / (var_a + var_b + c2)).mean()


def reconstruction_loss(output: Float[Tensor, "b 3 h w"], image: Float[Tensor, "b 3 h w"]) -> Float[Tensor, ""]:
    """Give the training loss ``L1 + 0.3 (1 - SSIM) + MSE``."""
    difference = output - image
    return difference.abs().mean() + 0.3 * (1 - ssim(output, image)) + difference.square().mean()


def psnr(output: Float[Tensor, "b 3 h w"], image: Float[Tensor, "b 3 h w"]) -> Float[Tensor, " b"]:
    """Give each picture's peak signal-to-noise ratio (dB) for values in [-1, 1]."""
    return -10 * torch.log10((output - image).square().flatten(1).mean(1) / 4)
