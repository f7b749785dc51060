"""The quantiser: unit codes, residual sums, and what one full-size scale does to the residual."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as nnf
from hypothesis import given, settings
from hypothesis import strategies as st

from bitresedit.bsq import BSQ, MultiScaleBSQ, downsample, upsample

SQUARE = [(1, 1), (2, 2), (4, 4), (4, 4)]
schedules = st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=4).map(
    lambda grids: [*grids, (6, 6)]
)


def latent(seed: int, batch: int, d: int, size: tuple[int, int]) -> torch.Tensor:
    return torch.randn(batch, d, *size, generator=torch.Generator().manual_seed(seed))


@settings(max_examples=40)
@given(st.integers(1, 70), st.integers(0, 1000))
def test_every_code_has_norm_one_and_its_own_signs(d, seed):
    bits = torch.rand(2, 3, 4, d, generator=torch.Generator().manual_seed(seed)) < 0.5
    quantiser = BSQ(d)
    codes = quantiser.codes(bits)
    torch.testing.assert_close(codes.norm(dim=1), torch.ones(2, 3, 4))
    assert torch.equal(quantiser.bits(codes), bits)


@settings(max_examples=40, deadline=None)
@given(schedules, st.integers(1, 9), st.integers(0, 1000))
def test_latent_minus_sum_is_the_residual_left_by_a_literal_loop(schedule, d, seed):
    bsq = MultiScaleBSQ(schedule, d, gains=torch.linspace(1.5, 0.5, len(schedule)))
    target = latent(seed, 2, d, (6, 6))
    bits = bsq.encode(target)
    residual = target.clone()
    for k, (h, w) in enumerate(schedule):
        pooled = nnf.adaptive_avg_pool2d(residual, (h, w))
        unit = pooled / pooled.norm(dim=1, keepdim=True)
        assert torch.equal(bits[k], (unit > 0).permute(0, 2, 3, 1))
        code = bsq.gains[k] * torch.where(unit > 0, 1.0, -1.0) / d**0.5
        residual = residual - nnf.interpolate(code[:, :, None], size=(1, 6, 6), mode="trilinear")[:, :, 0]
    torch.testing.assert_close(target - bsq.sum(bits), residual, atol=1e-6, rtol=0)


@settings(max_examples=40)
@given(st.integers(1, 64), st.integers(0, 1000))
def test_full_size_scale_leaves_the_closed_form_residual_norm(d, seed):
    # ||R - q||^2 = ||R||^2 + 1 - 2 ||R||_1 / sqrt(d): it may be larger than ||R||^2.
    target = latent(seed, 1, d, (3, 5))
    bsq = MultiScaleBSQ([(3, 5)], d)
    left = (target - bsq.sum(bsq.encode(target))).square().sum(1)
    expected = target.square().sum(1) + 1 - 2 * target.abs().sum(1) / d**0.5
    torch.testing.assert_close(left, expected, atol=1e-4, rtol=1e-4)


def test_a_scale_can_raise_the_residual_norm():
    target = torch.full((1, 4, 1, 1), 0.01)
    bsq = MultiScaleBSQ([(1, 1)], 4)
    assert (target - bsq.sum(bsq.encode(target))).norm() > target.norm()


def test_encoding_a_single_sum_of_codes_at_full_size_is_exact():
    bits = torch.rand(3, 4, 4, 8, generator=torch.Generator().manual_seed(0)) < 0.5
    bsq = MultiScaleBSQ([(4, 4)], 8, gains=[0.7])
    assert torch.equal(bsq.encode(bsq.sum([bits]))[0], bits)


def test_sum_of_a_prefix_is_a_partial_sum():
    bsq = MultiScaleBSQ(SQUARE, 6)
    bits = bsq.encode(latent(1, 2, 6, (4, 4)))
    total = torch.zeros(2, 6, 4, 4)
    for k in range(len(SQUARE)):
        total = total + bsq.upsampled(bits[k], k)
        torch.testing.assert_close(bsq.sum(bits[: k + 1]), total)


def test_resampling_to_the_own_size_changes_no_bit():
    x = latent(2, 1, 3, (5, 7))
    assert upsample(x, (5, 7)) is x
    assert downsample(x, (5, 7)) is x


@pytest.mark.parametrize("size", [(8, 8), (2, 2), (5, 3)])
def test_upsampling_is_trilinear_with_a_time_axis_of_one(size):
    x = latent(3, 2, 3, (4, 4))
    expected = nnf.interpolate(x[:, :, None], size=(1, *size), mode="trilinear", align_corners=False)[:, :, 0]
    torch.testing.assert_close(upsample(x, size), expected)


def test_no_flips_give_the_plain_encoding_and_its_prefix_sums():
    bsq = MultiScaleBSQ(SQUARE, 6)
    target = latent(4, 2, 6, (4, 4))
    plain, noisy = bsq.encode(target), bsq.encode_with_flips(target, torch.zeros(2))
    for k in range(len(SQUARE)):
        assert torch.equal(noisy.targets[k], plain[k])
        expected = bsq.sum(plain[:k]) if k else torch.zeros_like(target)
        torch.testing.assert_close(noisy.prefixes[k], expected)


def test_targets_after_flips_repair_the_error_that_the_flips_made():
    bsq = MultiScaleBSQ([(4, 4)] * 2, 16, gains=[1.0, 1.0])
    target = latent(5, 8, 16, (4, 4))
    generator = torch.Generator().manual_seed(0)
    noisy = bsq.encode_with_flips(target, torch.full((8,), 0.2), generator)
    residual = target - noisy.prefixes[1]
    assert torch.equal(noisy.targets[1], (residual > 0).permute(0, 2, 3, 1))
    flipped = (noisy.prefixes[1] > 0).permute(0, 2, 3, 1) != noisy.targets[0]
    assert 0.15 < flipped.float().mean() < 0.25
    # A bit that was flipped is repaired: the next target points back to the true side.
    assert torch.equal(noisy.targets[1][flipped], noisy.targets[0][flipped])


def test_straight_through_has_the_value_of_the_sum_and_the_gradient_of_the_latent():
    bsq = MultiScaleBSQ(SQUARE, 6)
    target = latent(6, 1, 6, (4, 4)).requires_grad_()
    weights = latent(7, 1, 6, (4, 4))
    out = bsq.straight_through(target)
    torch.testing.assert_close(out, bsq.sum(bsq.encode(target.detach())))
    (out * weights).sum().backward()
    torch.testing.assert_close(target.grad, weights)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: BSQ(0), "at least one bit"),
        (lambda: MultiScaleBSQ([], 4), "at least one grid"),
        (lambda: MultiScaleBSQ(SQUARE, 4, gains=[1.0]), "4 scales need as many gains"),
        (lambda: MultiScaleBSQ(SQUARE, 4).encode(torch.zeros(1, 4, 8, 8)), r"expected a latent \[B, 4, 4, 4\]"),
        (lambda: MultiScaleBSQ(SQUARE, 4).sum([]), "1 to 4 scales"),
        (lambda: BSQ(4).codes(torch.zeros(1, 1, 1, 5, dtype=torch.bool)), "expected 4 bits"),
    ],
)
def test_wrong_shapes_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
