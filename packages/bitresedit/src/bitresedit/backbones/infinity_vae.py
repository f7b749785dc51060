"""The convolutional encoder and decoder between images and Infinity's latent grid.

Residual blocks of GroupNorm, swish and 3 x 3 convolutions at widths ``ch * mult``; the encoder halves the
grid with a stride-2 convolution after every level but the last, the decoder doubles it by nearest-neighbour
upsampling and a convolution. There is no attention, so a latent cell reaches a bounded window of pixels
except through GroupNorm's statistics. Images are RGB in [-1, 1].
"""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as nnf
from jaxtyping import Float
from torch import Tensor, nn

_GROUPS, _EPS = 32, 1e-6


def _norm(width: int) -> nn.GroupNorm:
    return nn.GroupNorm(_GROUPS, width, eps=_EPS)


@dataclass(frozen=True)
class VAEConfig:
    """Sizes of the image autoencoder.

    Parameters
    ----------
    d
        Channels of the latent, which are the bits of one code.
    channels
        Width of the first level.
    multipliers
        Width of each level over ``channels``; the latent grid is ``2**(levels - 1)`` times coarser than the
        image.
    blocks
        Residual blocks of an encoder level; a decoder level has one more.
    """

    d: int = 32
    channels: int = 128
    multipliers: tuple[int, ...] = (1, 2, 4, 4, 4)
    blocks: int = 2

    @property
    def stride(self) -> int:
        """Pixels along one side of a latent cell."""
        return 2 ** (len(self.multipliers) - 1)


class ResidualBlock(nn.Module):
    """``x + conv(swish(norm(conv(swish(norm(x))))))``, with a 1 x 1 convolution on ``x`` if widths differ."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.norm1 = _norm(inputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.norm2 = _norm(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.nin_shortcut = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else None

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b out h w"]:
        """Apply the block."""
        y = self.conv1(nnf.silu(self.norm1(x)))
        y = self.conv2(nnf.silu(self.norm2(y)))
        return y + (x if self.nin_shortcut is None else self.nin_shortcut(x))


class Halve(nn.Module):
    """Stride-2 convolution after one row and column of zeros at the bottom and right."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, stride=2)

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c half_h half_w"]:
        """Halve the grid."""
        return self.conv(nnf.pad(x, (0, 1, 0, 1)))


class Double(nn.Module):
    """Nearest-neighbour doubling, then a 3 x 3 convolution."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c double_h double_w"]:
        """Double the grid."""
        return self.conv(nnf.interpolate(x, scale_factor=2, mode="nearest"))


class Middle(nn.Module):
    """Two residual blocks at the latent's resolution."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.block_1 = ResidualBlock(width, width)
        self.block_2 = ResidualBlock(width, width)

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
        """Apply both."""
        return self.block_2(self.block_1(x))


class EncoderLevel(nn.Module):
    """Residual blocks at one resolution, then halving except at the coarsest."""

    def __init__(self, inputs: int, outputs: int, blocks: int, halve: bool) -> None:
        super().__init__()
        self.block = nn.Sequential(*(ResidualBlock(outputs if j else inputs, outputs) for j in range(blocks)))
        self.downsample = Halve(outputs) if halve else nn.Identity()

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b out next_h next_w"]:
        """Apply the level."""
        return self.downsample(self.block(x))


class DecoderLevel(nn.Module):
    """Residual blocks at one resolution, then doubling except at the finest."""

    def __init__(self, inputs: int, outputs: int, blocks: int, double: bool) -> None:
        super().__init__()
        self.block = nn.Sequential(*(ResidualBlock(outputs if j else inputs, outputs) for j in range(blocks)))
        self.upsample = Double(outputs) if double else nn.Identity()

    def forward(self, x: Float[Tensor, "b c h w"]) -> Float[Tensor, "b out next_h next_w"]:
        """Apply the level."""
        return self.upsample(self.block(x))


class Encoder(nn.Module):
    """Image to latent."""

    def __init__(self, config: VAEConfig) -> None:
        super().__init__()
        widths = [config.channels * m for m in config.multipliers]
        self.conv_in = nn.Conv2d(3, config.channels, 3, padding=1)
        self.down = nn.Sequential(
            *(
                EncoderLevel(before, width, config.blocks, halve=i < len(widths) - 1)
                for i, (before, width) in enumerate(zip([config.channels, *widths], widths, strict=False))
            )
        )
        self.mid = Middle(widths[-1])
        self.norm_out = _norm(widths[-1])
        self.conv_out = nn.Conv2d(widths[-1], config.d, 3, padding=1)

    def forward(self, image: Float[Tensor, "b 3 h w"]) -> Float[Tensor, "b d latent_h latent_w"]:
        """Encode."""
        x = self.mid(self.down(self.conv_in(image)))
        return self.conv_out(nnf.silu(self.norm_out(x)))


class Decoder(nn.Module):
    """Latent to image."""

    def __init__(self, config: VAEConfig) -> None:
        super().__init__()
        widths = [config.channels * m for m in config.multipliers]
        self.conv_in = nn.Conv2d(config.d, widths[-1], 3, padding=1)
        self.mid = Middle(widths[-1])
        # Checkpoints number the levels from the finest, as the encoder does, though the coarsest runs first.
        self.up = nn.ModuleList(
            DecoderLevel(before, width, config.blocks + 1, double=i > 0)
            for i, (before, width) in enumerate(zip([*widths[1:], widths[-1]], widths, strict=True))
        )
        self.norm_out = _norm(widths[0])
        self.conv_out = nn.Conv2d(widths[0], 3, 3, padding=1)

    def forward(self, latent: Float[Tensor, "b d latent_h latent_w"]) -> Float[Tensor, "b 3 h w"]:
        """Decode."""
        x = self.mid(self.conv_in(latent))
        for level in reversed(self.up):
            x = level(x)
        return self.conv_out(nnf.silu(self.norm_out(x)))


class InfinityVAE(nn.Module):
    """The image autoencoder of Infinity; :class:`~bitresedit.bsq.MultiScaleBSQ` quantises between its halves.

    Parameters
    ----------
    config
        Sizes.

    References
    ----------
    Infinity, arXiv 2412.04431, section 3 (visual tokenizer).
    """

    def __init__(self, config: VAEConfig | None = None) -> None:
        super().__init__()
        self.config = config or VAEConfig()
        self.encoder = Encoder(self.config)
        self.decoder = Decoder(self.config)

    def encode(self, image: Float[Tensor, "b 3 h w"]) -> Float[Tensor, "b d latent_h latent_w"]:
        """Map RGB images in [-1, 1], sides a multiple of the stride, to continuous latents."""
        return self.encoder(image)

    def decode(self, latent: Float[Tensor, "b d latent_h latent_w"]) -> Float[Tensor, "b 3 h w"]:
        """Map latents (sums of codes) to RGB images, clamped to [-1, 1]."""
        return self.decoder(latent).clamp(-1.0, 1.0)


def published_names(module: nn.Module) -> dict[str, str]:
    """Map this module's parameter names to a published checkpoint's.

    Published files wrap every convolution and normalisation in a module of its own, which adds one segment
    ``.conv`` or ``.norm`` to the name: ``encoder.conv_in.weight`` is stored as
    ``encoder.conv_in.conv.weight``.
    """
    inner = {nn.Conv2d: "conv", nn.GroupNorm: "norm"}
    names = {}
    for path, child in module.named_modules():
        if type(child) in inner:
            for leaf, _ in child.named_parameters():
                names[f"{path}.{leaf}"] = f"{path}.{inner[type(child)]}.{leaf}"
    return names
