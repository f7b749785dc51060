from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

from bitresedit import bits_reference as literal
from bitresedit.bits import bernoulli_kl, logodds, sample_bits, source_negative, trust_region
from bitresedit.errors import BitResEditError

LOGITS = st.floats(-12, 12, allow_nan=False)


def pairs(count: int, seed: int = 0, spread: float = 4.0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    ref = spread * torch.randn(count, generator=generator, dtype=torch.float64)
    return ref + spread * torch.randn(count, generator=generator, dtype=torch.float64), ref


def test_logodds_is_one_minus_zero_in_float32():
    logits = torch.tensor([[1.0, 3.0], [2.0, -1.0]], dtype=torch.bfloat16)
    assert logodds(logits).tolist() == [2.0, -3.0]
    assert logodds(logits).dtype == torch.float32


def test_kl_agrees_with_torch_distributions():
    p, q = torch.meshgrid(*[torch.linspace(-15, 15, 61, dtype=torch.float64)] * 2, indexing="ij")
    theirs = torch.distributions.kl_divergence(
        torch.distributions.Bernoulli(logits=p), torch.distributions.Bernoulli(logits=q)
    )
    assert (bernoulli_kl(p, q) - theirs).abs().max() <= 1e-10
    assert (bernoulli_kl(p.float(), q.float()) - theirs).abs().max() <= 1e-6


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_kl_is_finite_and_right_at_huge_logodds(dtype):
    huge = torch.tensor([1e4, -1e4, 1e4, -1e4, 1e4], dtype=dtype)
    other = torch.tensor([-1e4, 1e4, 1e4 - 1, -1e4, 0.0], dtype=dtype)
    assert bernoulli_kl(huge, other).tolist() == pytest.approx([2e4 - 1e4, 1e4, 0.0, 0.0, math.log(2)])


@settings(max_examples=40)
@given(LOGITS, LOGITS)
def test_kl_is_nonnegative_zero_at_equality_and_mirror_symmetric(p, q):
    a, b = torch.tensor([p, p], dtype=torch.float64), torch.tensor([q, p], dtype=torch.float64)
    value = bernoulli_kl(a, b)
    assert value[0] >= 0
    assert value[1] == 0
    assert torch.equal(value, bernoulli_kl(-a, -b))
    assert value[0].item() == pytest.approx(literal.kl(p, q), abs=1e-14)


@pytest.mark.parametrize("delta", [0.01, 0.3, 1.0])
def test_exact_step_is_the_largest_feasible_point_of_a_fine_grid(delta):
    raw, ref = pairs(16, seed=1)
    _, a = trust_region(raw, ref, delta, math.inf)
    grid = torch.linspace(0, 1, 100_001, dtype=torch.float64)
    for i in range(len(raw)):
        feasible = bernoulli_kl(ref[i] + grid * (raw[i] - ref[i]), ref[i].expand_as(grid)) <= delta
        assert abs(grid[feasible].max().item() - a[i].item()) <= 1e-4


@pytest.mark.parametrize("delta", [1e-3, 0.1, 0.3, 2.0])
def test_exact_step_agrees_with_brentq(delta):
    raw, ref = pairs(300, seed=2)
    d, a = trust_region(raw, ref, delta, math.inf)
    solved = 0
    for r, q, got, fraction in zip(raw.tolist(), ref.tolist(), d.tolist(), a.tolist(), strict=True):
        if literal.kl(r, q) <= delta:
            assert got == r
            assert fraction == 1
            continue
        root = brentq(lambda p, q=q: literal.kl(p, q) - delta, q, r, xtol=1e-13, rtol=1e-14)
        assert abs(got - root) <= 1e-6
        assert abs(fraction - (root - q) / (r - q)) <= 1e-6
        solved += 1
    assert solved >= 20


@pytest.mark.parametrize("delta", [1e-6, 1e-3, 0.3, 1.0, 5.0])
def test_newton_converges_from_every_reference_to_the_boundary(delta):
    edge = -math.log(math.expm1(delta))  # above it a certain one costs less than delta
    ref = torch.cat([torch.linspace(-60, edge - 1e-3, 20_000), torch.tensor([-1e4, -500.0])]).double()
    raw = torch.full_like(ref, 1e4)
    d, a = trust_region(raw, ref, delta, math.inf)
    assert (bernoulli_kl(d, ref) - delta).abs().max() <= 1e-8
    assert bool((a < 1).all())


def test_a_nearly_certain_bit_cannot_spend_delta_and_is_never_limited():
    ref = torch.tensor([1.2, 20.0, -1.2, -20.0], dtype=torch.float64)  # softplus(-1.2) < 0.3
    raw = torch.tensor([1e4, 1e4, -1e4, -1e4], dtype=torch.float64)
    d, a = trust_region(raw, ref, 0.3, math.inf)
    assert torch.equal(d, raw)
    assert bool((a == 1).all())


@pytest.mark.parametrize("solver", ["exact", "bisect4"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_trust_region_is_odd(solver, dtype):
    raw, ref = (x.to(dtype) for x in pairs(4000, seed=3))
    d, a = trust_region(raw, ref, 0.3, 5.0, solver)
    mirrored, mirrored_a = trust_region(-raw, -ref, 0.3, 5.0, solver)
    assert torch.equal(mirrored, -d)
    assert torch.equal(mirrored_a, a)


@pytest.mark.parametrize("solver", ["exact", "bisect4"])
def test_no_budget_keeps_the_reference_and_no_limits_keep_the_wish(solver):
    raw, ref = (x.float() for x in pairs(2000, seed=4))
    d, a = trust_region(raw, ref, 0.0, math.inf, solver)
    assert torch.equal(d, ref)
    assert bool((a == 0).all())
    d, a = trust_region(raw, ref, math.inf, math.inf, solver)
    assert torch.equal(d, raw)
    assert bool((a == 1).all())


@settings(max_examples=40)
@given(st.integers(0, 10_000), st.sampled_from([0.01, 0.3, 1.0]))
def test_bisect4_stops_between_the_reference_and_the_exact_step(seed, delta):
    raw, ref = pairs(50, seed)
    _, exact = trust_region(raw, ref, delta, math.inf)
    d, coarse = trust_region(raw, ref, delta, math.inf, "bisect4")
    assert bool((coarse <= exact + 1e-9).all())
    assert bool((coarse >= 0).all())
    assert bool((exact - coarse <= 1 / 16 + 1e-9).all())
    assert bool((bernoulli_kl(d, ref) <= delta + 1e-12).all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_limited_bits_stay_inside_both_limits(dtype):
    raw, ref = (x.to(dtype) for x in pairs(20_000, seed=5, spread=8.0))
    d, a = trust_region(raw, ref, 0.3, 5.0)
    assert bernoulli_kl(d.double(), ref.double()).max() <= 0.3 + 1e-6
    assert (d - ref).abs().max() <= 5 + 1e-5  # one rounding of a float32 of size 40
    assert bool(((d - ref) * (raw - ref) >= 0).all())
    clipped = (d - ref).abs() >= 5 - 1e-5
    # a is the step of the divergence, before the clip: some clipped bits were not limited by it.
    assert bool((a[clipped] == 1).any())


def test_an_equal_pair_takes_the_whole_empty_step():
    same = torch.tensor([0.0, 3.0, -1e4])
    for delta in (0.0, 0.3):
        d, a = trust_region(same, same, delta)
        assert torch.equal(d, same)
        assert bool((a == 1).all())


@pytest.mark.parametrize(
    ("delta", "linf", "solver"),
    [(-1.0, 5.0, "exact"), (0.3, -1.0, "exact"), (math.nan, 5.0, "exact"), (0.3, 5.0, "newton")],
)
def test_impossible_limits_are_refused(delta, linf, solver):
    x = torch.zeros(1)
    with pytest.raises(BitResEditError):
        trust_region(x, x, delta, linf, solver)


@pytest.mark.parametrize("solver", ["exact", "bisect4"])
def test_all_steps_equal_the_literal_version_bit_by_bit(solver):
    generator = torch.Generator().manual_seed(6)
    target, null, source = (3 * torch.randn(200, generator=generator, dtype=torch.float64) for _ in range(3))
    inside = torch.rand(200, generator=generator) < 0.7
    guided = target + 3.0392 * (target - null)
    raw = source_negative(guided, target, source, inside, 2.0)
    d, a = trust_region(raw, guided, 0.3, 5.0, solver)
    for i in range(200):
        want, fraction = literal.edit_bit(
            *(x[i].item() for x in (target, null, source)), bool(inside[i]), 4.0392, 2.0, 0.3, 5.0, solver
        )
        assert d[i].item() == pytest.approx(want, abs=1e-7)
        assert a[i].item() == pytest.approx(fraction, abs=1e-7)


def test_tilt_is_nothing_outside_the_region_and_at_eta_zero():
    d_cfg, target, source = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(7))
    inside = torch.tensor([True, False, True, False])[:, None]
    tilted = source_negative(d_cfg, target, source, inside, 1.5)
    assert torch.equal(tilted[1::2], d_cfg[1::2])
    assert torch.allclose(tilted[::2], (d_cfg - 1.5 * (source - target))[::2])
    assert torch.equal(source_negative(d_cfg, target, source, inside, 0.0), d_cfg)


def test_sampling_equals_the_literal_version():
    generator = torch.Generator().manual_seed(8)
    d = 4 * torch.randn(3000, generator=generator)
    drawn = sample_bits(d, 0.5, 0.97, torch.Generator().manual_seed(9))
    uniform = torch.rand(3000, generator=torch.Generator().manual_seed(9))
    want = [literal.draw_bit(x, u, 0.5, 0.97) for x, u in zip(d.tolist(), uniform.tolist(), strict=True)]
    assert drawn.tolist() == want


def test_sampling_frequencies_are_the_probabilities_and_improbable_values_vanish():
    values = torch.tensor([-4.0, -3.0, -1.0, 0.0, 2.0, 4.0])
    drawn = sample_bits(values.repeat(20_000, 1), 1.0, 0.97, torch.Generator().manual_seed(10))
    frequency = drawn.double().mean(0).numpy()
    probability = torch.sigmoid(values.double()).numpy()
    assert frequency[0] == 0  # sigma(-4) = 0.018 <= 0.03
    assert frequency[5] == 1
    np.testing.assert_allclose(frequency[1:5], probability[1:5], atol=4 * 0.5 / np.sqrt(20_000))


@pytest.mark.parametrize("top_p", [0.1, 0.5])
def test_the_likelier_value_survives_any_top_p(top_p):
    drawn = sample_bits(torch.tensor([2.0, -2.0, 1e4, -1e4]), 1.0, top_p, torch.Generator().manual_seed(0))
    assert drawn.tolist() == [True, False, True, False]


@pytest.mark.parametrize(("tau", "top_p"), [(0.0, 0.9), (-1.0, 0.9), (1.0, 0.0), (1.0, 1.1)])
def test_impossible_sampling_settings_are_refused(tau, top_p):
    with pytest.raises(BitResEditError):
        sample_bits(torch.zeros(1), tau, top_p)


def test_tilt_schedule_runs_from_full_to_none():
    assert literal.tilt_schedule(2.0, 5) == pytest.approx([2.0, 1.5, 1.0, 0.5, 0.0])
    assert literal.tilt_schedule(2.0, 1) == [0.0]
