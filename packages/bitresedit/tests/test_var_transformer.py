"""The transformer: cached and full passes agree, causality, the block's equation, rotary positions, batching."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as nnf

from bitresedit.bsq import MultiScaleBSQ
from bitresedit.var_transformer import (
    Cond,
    KVCache,
    VARConfig,
    VARTransformer,
    block_causal_mask,
    rope_rotations,
)

SCHEDULE = [(1, 1), (2, 2), (3, 3), (3, 3)]
TEXT, WORDS = 12, 5


def build(positions: bool = True, schedule=SCHEDULE, reference=None, seed: int = 0) -> VARTransformer:
    torch.manual_seed(seed)
    config = VARConfig(
        depth=3,
        width=32,
        heads=2,
        d=6,
        text_dim=TEXT,
        pool_heads=2,
        null_tokens=4,
        levels=5,
        rope_base=100.0,
        position_embedding=positions,
    )
    model = VARTransformer(config, schedule, reference)
    with torch.no_grad():
        # Away from the symmetric start, so that every branch matters.
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


def condition(model: VARTransformer, rows: int, seed: int = 1) -> Cond:
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(rows, WORDS, TEXT, generator=generator)
    mask = torch.arange(WORDS)[None] < torch.randint(1, WORDS + 1, (rows, 1), generator=generator)
    return model.condition(features, mask)


def inputs(model: VARTransformer, cond: Cond, seed: int = 2) -> list[torch.Tensor]:
    bsq = MultiScaleBSQ(model.schedule, model.config.d)
    generator = torch.Generator().manual_seed(seed)
    h, w = model.schedule[-1]
    latent = torch.randn(cond.tokens.shape[0], model.config.d, h, w, generator=generator)
    prefixes = bsq.encode_with_flips(latent, torch.zeros(len(latent))).prefixes
    return [model.start(cond), *(model.embed(prefixes[k], k) for k in range(1, len(prefixes)))]


@pytest.mark.parametrize("positions", [True, False])
@pytest.mark.parametrize("schedule", [SCHEDULE, [(1, 1), (3, 2), (6, 4)]])
@torch.no_grad()
def test_cached_scales_equal_the_block_causal_full_pass(positions, schedule):
    model = build(positions, schedule, None if positions else (16, 12))
    cond = condition(model, 2)
    parts, cache = inputs(model, cond), KVCache()
    full = model(torch.cat(parts, dim=1), cond)
    cached = torch.cat([model.logits(x, cond, k, cache) for k, x in enumerate(parts)], dim=1)
    torch.testing.assert_close(cached, full, atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_a_later_scale_never_changes_an_earlier_one():
    model = build()
    cond = condition(model, 1)
    parts = inputs(model, cond)
    before = model(torch.cat(parts, dim=1), cond)
    parts[2] = parts[2] + 1
    after = model(torch.cat(parts, dim=1), cond)
    assert torch.equal(before[:, : model.offsets[2]], after[:, : model.offsets[2]])
    assert not torch.allclose(before[:, model.offsets[2] :], after[:, model.offsets[2] :])


@torch.no_grad()
def test_a_batch_of_three_equals_three_runs():
    model = build()
    cond = condition(model, 3)
    parts = inputs(model, cond)
    together = model(torch.cat(parts, dim=1), cond)
    for row in range(3):
        alone = model(torch.cat([x[row : row + 1] for x in parts], dim=1), cond.select([row]))
        torch.testing.assert_close(alone[0], together[row], atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_padding_of_the_text_changes_nothing():
    model = build()
    features = torch.randn(1, 3, TEXT, generator=torch.Generator().manual_seed(4))
    short = model.condition(features, torch.ones(1, 3, dtype=torch.bool))
    padded = Cond.cat([short, model.null_condition(1)]).select([0])
    assert padded.tokens.shape[1] == 4
    parts = torch.cat(inputs(model, short), dim=1)
    torch.testing.assert_close(model(parts, padded), model(parts, short), atol=1e-5, rtol=1e-5)


def test_mask_lets_a_token_see_its_own_and_earlier_scales_only():
    mask = block_causal_mask([(1, 1), (1, 2), (2, 1)])
    expected = [[1, 0, 0, 0, 0], [1, 1, 1, 0, 0], [1, 1, 1, 0, 0], [1, 1, 1, 1, 1], [1, 1, 1, 1, 1]]
    assert mask.int().tolist() == expected


def test_rotations_are_the_published_formula_spelt_out():
    schedule, reference, head_dim, base = [(1, 1), (3, 5)], (64, 48), 8, 10000.0
    rotations = rope_rotations(schedule, head_dim, base, reference)
    places = [(0, 0)] + [(round(i * 64 / 3), round(j * 48 / 5)) for i in range(3) for j in range(5)]
    half = head_dim // 2
    frequencies = [base ** (-2 * i / half) for i in range(half // 2)]
    for token, (row, column) in enumerate(places):
        angles = torch.tensor([row * f for f in frequencies] + [column * f for f in frequencies])
        expected = torch.polar(torch.ones(half), angles)
        torch.testing.assert_close(rotations[token], expected, atol=1e-5, rtol=1e-5)


def test_rounding_of_rotary_places_is_half_to_even():
    # 4 * i / 8 = 0, .5, 1, 1.5, ...: half to even gives 0 0 1 2 2 2 3 4.
    rotations = rope_rotations([(8, 1)], 4, 1.0, (4, 1))
    assert torch.round(rotations[:, 0].angle() % (2 * math.pi)).int().tolist() == [0, 0, 1, 2, 2, 2, 3, 4]


def test_cell_centres_of_a_coarse_grid_lie_between_those_of_the_fine_one():
    rotations = rope_rotations([(2, 2), (4, 4)], 4, 100.0)
    torch.testing.assert_close(rotations[:4, 0].angle(), torch.tensor([1.0, 1.0, 3.0, 3.0]))
    fine = rotations[4:8, 1].angle() % (2 * math.pi)
    torch.testing.assert_close(fine, torch.tensor([0.5, 1.5, 2.5, 3.5]))


def test_scores_of_rotary_positions_depend_on_the_offset_alone():
    rotations = rope_rotations([(6, 6)], 8, 100.0, (6, 6)).unflatten(0, (6, 6))
    generator = torch.Generator().manual_seed(0)
    query, key = (torch.view_as_complex(torch.randn(4, 2, generator=generator)) for _ in range(2))

    def score(a: tuple[int, int], b: tuple[int, int]) -> float:
        return float((query * rotations[a] * (key * rotations[b]).conj()).real.sum())

    assert score((1, 2), (3, 1)) == pytest.approx(score((2, 4), (4, 3)), abs=1e-5)
    assert score((1, 2), (3, 1)) != pytest.approx(score((1, 2), (3, 4)), abs=1e-2)


@torch.no_grad()
def test_block_is_the_published_equation_written_out():
    model = build(positions=False, schedule=[(1, 1), (2, 2)], reference=(4, 4))
    block, heads, width = model.blocks[0], 2, 32
    cond = condition(model, 1)
    x = torch.randn(1, 5, width, generator=torch.Generator().manual_seed(3))
    shared = torch.randn(1, 1, 6, width, generator=torch.Generator().manual_seed(4))
    rotations, mask = rope_rotations([(1, 1), (2, 2)], 16, 100.0, (4, 4)), block_causal_mask([(1, 1), (2, 2)])

    def norm(v: torch.Tensor) -> torch.Tensor:
        return (v - v.mean(-1, keepdim=True)) / (v.var(-1, keepdim=True, unbiased=False) + 1e-6).sqrt()

    def turn(v: torch.Tensor) -> torch.Tensor:
        even, odd = v[..., 0::2], v[..., 1::2]
        cos, sin = rotations.real, rotations.imag
        return torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2)

    def split(v: torch.Tensor) -> torch.Tensor:
        return v.reshape(1, -1, heads, width // heads).transpose(1, 2)

    g1, g2, s1, s2, b1, b2 = (block.ada_gss + shared).unbind(2)
    y = norm(x) * (1 + s1) + b1
    q, k, v = (y @ block.sa.mat_qkv.weight.T).chunk(3, dim=-1)
    q, k, v = split(q + block.sa.q_bias), split(k), split(v + block.sa.v_bias)
    scale = block.sa.scale_mul_1H11.clamp(max=math.log(100)).exp()
    q, k = turn(q / q.norm(dim=-1, keepdim=True) * scale), turn(k / k.norm(dim=-1, keepdim=True))
    scores = (q @ k.transpose(-1, -2)).masked_fill(~mask, -math.inf)
    out = (scores.softmax(-1) @ v).transpose(1, 2).reshape(1, -1, width)
    x1 = x + g1 * (out @ block.sa.proj.weight.T + block.sa.proj.bias)

    y = norm(x1) * block.ca_norm.weight + block.ca_norm.bias
    q = split(y @ block.ca.mat_q.weight.T + block.ca.mat_q.bias)
    k, v = (cond.tokens @ block.ca.mat_kv.weight.T).chunk(2, dim=-1)
    k, v = split(k), split(v + block.ca.v_bias)
    scores = (q @ k.transpose(-1, -2) / math.sqrt(width // heads)).masked_fill(~cond.mask[:, None, None], -math.inf)
    out = (scores.softmax(-1) @ v).transpose(1, 2).reshape(1, -1, width)
    x2 = x1 + out @ block.ca.proj.weight.T + block.ca.proj.bias

    y = norm(x2) * (1 + s2) + b2
    hidden = nnf.gelu(y @ block.ffn.fc1.weight.T + block.ffn.fc1.bias, approximate="tanh")
    expected = x2 + g2 * (hidden @ block.ffn.fc2.weight.T + block.ffn.fc2.bias)
    found = block(x, shared, cond, rotations, mask, 0, None)
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-4)


@torch.no_grad()
def test_hook_sees_probabilities_and_an_identity_hook_changes_nothing():
    model = build()
    cond, seen = condition(model, 2), []

    def hook(layer: int, probabilities: torch.Tensor) -> torch.Tensor:
        seen.append((layer, tuple(probabilities.shape)))
        torch.testing.assert_close(probabilities.sum(-1), torch.ones(probabilities.shape[:-1]))
        assert (probabilities * ~cond.mask[:, None, None]).abs().max() == 0
        return probabilities

    x = model.start(cond)
    plain = model.logits(x, cond, 0, KVCache())
    hooked = model.logits(x, cond, 0, KVCache(cross_attention=hook))
    torch.testing.assert_close(hooked, plain, atol=1e-5, rtol=1e-5)
    assert seen == [(layer, (2, 2, 1, WORDS)) for layer in range(3)]


@torch.no_grad()
def test_another_schedule_runs_with_the_same_weights():
    model = build(positions=False)
    model.set_schedule([(1, 1), (2, 3), (4, 6)], (8, 12))
    cond = condition(model, 1)
    logits = model(torch.cat(inputs(model, cond), dim=1), cond)
    assert logits.shape == (1, 1 + 6 + 24, 6, 2)
    assert logits.dtype == torch.float32


def test_casting_the_weights_keeps_the_positions_exact():
    model = build(positions=False, reference=(64, 64))
    expected = model._rotations.clone()
    assert torch.equal(model.to(torch.bfloat16)._rotations, expected)
    assert model.logits(model.start(condition_of(model)), condition_of(model), 0, KVCache()).dtype == torch.float32


def condition_of(model: VARTransformer) -> Cond:
    with torch.no_grad():
        cond = model.null_condition(1)
    return cond._replace(pooled=cond.pooled.to(torch.bfloat16))


def test_conditions_concatenate_and_select_rows_with_their_words():
    model = build()
    a = model.condition(torch.zeros(1, 2, TEXT), torch.ones(1, 2, dtype=torch.bool), (("red", "ball"),))
    both = Cond.cat([a, model.null_condition(1)])
    assert both.words == (("red", "ball", "", ""), ("", "", "", ""))
    assert both.mask.tolist() == [[True, True, False, False], [True] * 4]
    assert both.select([1, 0, 0]).words == (both.words[1], both.words[0], both.words[0])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: VARTransformer(VARConfig(1, 30, 4, 6, TEXT), SCHEDULE), "not a multiple of 4 heads"),
        (lambda: build(schedule=[(2, 2), (3, 3)]), "first scale must be 1 x 1"),
        (lambda: build(schedule=[(1, 1)] * 6), "6 scales, but 5 level embeddings"),
        (lambda: rope_rotations([(1, 1)], 6, 10.0), "multiple of 4"),
        (lambda: build()(torch.zeros(1, 3, 32), build().null_condition(1)), "expected 23 tokens, got 3"),
    ],
)
def test_impossible_shapes_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
