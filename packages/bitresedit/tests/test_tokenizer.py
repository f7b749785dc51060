"""The tokenizer: what the closed-form start promises, the losses, and shapes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as nnf
from skimage.metrics import peak_signal_noise_ratio, structural_similarity

from bitresedit.bsq import downsample, upsample
from bitresedit.tokenizer import (
    SceneTokenizer,
    TokenizerConfig,
    closed_form_start,
    psnr,
    reconstruction_loss,
    ssim,
)

SMALL = TokenizerConfig(
    image_size=16,
    patch=4,
    d=6,
    schedule=((1, 1), (2, 2), (4, 4), (4, 4)),
    widths=(4, 4, 4),
    decoder_blocks=1,
    refine_blocks=1,
)


def pictures(n: int, size: int = 16, seed: int = 0) -> torch.Tensor:
    """Smooth random pictures in [-1, 1]."""
    coarse = torch.rand(n, 3, size // 4, size // 4, generator=torch.Generator().manual_seed(seed)) * 2 - 1
    return upsample(coarse, (size, size))


def started(n: int = 200) -> tuple[SceneTokenizer, torch.Tensor]:
    images = pictures(n)
    torch.manual_seed(0)
    tokenizer = SceneTokenizer(SMALL)
    closed_form_start(tokenizer, images, torch.Generator().manual_seed(1))
    return tokenizer, images


@torch.no_grad()
def test_closed_form_encoder_spans_the_principal_components_at_the_asked_norm():
    tokenizer, images = started()
    latent = tokenizer.encode(images)
    assert latent.norm(dim=1).mean() == pytest.approx(2.5, rel=1e-4)
    patches = nnf.unfold(images, 4, stride=4).transpose(1, 2).flatten(0, 1)
    centred = patches - patches.mean(0)
    top = torch.linalg.svd(centred, full_matrices=False).Vh[: SMALL.d]
    rows = tokenizer.linear_encoder.weight.flatten(1)
    # Every encoder row lies in the span of the leading components, and the rows are orthogonal.
    torch.testing.assert_close(rows @ top.T @ top, rows, atol=1e-4, rtol=1e-3)
    gram = rows @ rows.T
    torch.testing.assert_close(gram, gram[0, 0] * torch.eye(SMALL.d), atol=1e-4 * float(gram[0, 0]), rtol=1e-3)


@torch.no_grad()
def test_each_gain_is_the_least_squares_factor_of_its_residual():
    tokenizer, images = started()
    residual = tokenizer.encode(images)
    for k, size in enumerate(SMALL.schedule):
        bits = tokenizer.bsq.quantiser.bits(downsample(residual, size))
        unit = upsample(tokenizer.bsq.quantiser.codes(bits), tokenizer.bsq.grid)
        errors = [(residual - g * unit).square().sum() for g in tokenizer.bsq.gains[k] * torch.tensor([0.99, 1, 1.01])]
        assert errors[1] < min(errors[0], errors[2])
        residual = residual - tokenizer.bsq.gains[k] * unit


@torch.no_grad()
def test_networks_beside_the_linear_maps_start_at_zero():
    tokenizer, images = started(20)
    torch.testing.assert_close(tokenizer.encode(images), tokenizer.linear_encoder(images))
    latent = tokenizer.bsq.sum(tokenizer.bsq.encode(tokenizer.encode(images)))
    linear = nnf.pixel_shuffle(tokenizer.linear_decoder(latent), 4)
    torch.testing.assert_close(tokenizer.reconstruct(latent), linear)


@torch.no_grad()
def test_ridge_decoder_cannot_be_improved_by_a_small_step():
    tokenizer, images = started()
    latent = tokenizer.bsq.sum(tokenizer.bsq.encode(tokenizer.encode(images)))

    def error() -> float:
        return float((nnf.pixel_shuffle(tokenizer.linear_decoder(latent), 4) - images).square().mean())

    best, generator = error(), torch.Generator().manual_seed(3)
    weight = tokenizer.linear_decoder.weight
    for _ in range(5):
        step = 0.05 * torch.randn(weight.shape, generator=generator)
        weight.add_(step)
        assert error() > best
        weight.sub_(step)


@torch.no_grad()
def test_more_scales_reconstruct_better_on_held_out_pictures():
    tokenizer, _ = started()
    held_out = pictures(50, seed=9)
    bits = tokenizer.bsq.encode(tokenizer.encode(held_out))
    values = [psnr(tokenizer.decode(tokenizer.bsq.sum(bits[:k])), held_out).mean() for k in (1, 2, 3, 4)]
    assert values == sorted(values)
    assert values[-1] > values[0] + 3


def test_gradients_reach_the_encoder_through_the_signs():
    tokenizer, images = started(4)
    reconstruction_loss(tokenizer(images), images).backward()
    assert tokenizer.linear_encoder.weight.grad.abs().max() > 0
    assert tokenizer.encoder[-1].weight.grad.abs().max() > 0


def test_ssim_and_psnr_are_those_of_scikit_image():
    a, b = pictures(3), pictures(3) * 0.8 + 0.1 * pictures(3, seed=5)
    arrays = [x.permute(0, 2, 3, 1).double().numpy() for x in (a, b)]
    expected = np.mean(
        [structural_similarity(x, y, win_size=7, data_range=2, channel_axis=-1) for x, y in zip(*arrays, strict=True)]
    )
    assert float(ssim(a, b)) == pytest.approx(expected, abs=1e-5)
    for value, x, y in zip(psnr(a, b), *arrays, strict=True):
        assert float(value) == pytest.approx(peak_signal_noise_ratio(x, y, data_range=2), abs=1e-4)


def test_loss_of_equal_pictures_is_zero():
    images = pictures(2)
    assert float(reconstruction_loss(images, images)) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"patch": 6, "image_size": 24}, "multiple of 4"), ({"image_size": 32}, "the last scale must be 8 x 8")],
)
def test_sizes_that_do_not_fit_are_named(changes, message):
    values = {**vars(SMALL), **changes}
    with pytest.raises(ValueError, match=message):
        SceneTokenizer(TokenizerConfig(**values))
