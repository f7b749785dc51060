"""The loop of BitEdit and ResEdit, against literal re-implementations and its invariants."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from bitresedit import bits_reference as literal
from bitresedit.bits import sample_bits
from bitresedit.config import EditConfig
from bitresedit.errors import BitResEditError
from bitresedit.gate import edit_gate, region
from bitresedit.resedit import EditBatch, compose, edit_codes
from bitresedit.rollout import generate, null_rows, predict, teacher_forced
from bitresedit.var_transformer import Cond

SOURCE, TARGET = "a red metal ball on sand", "a blue glass cube on sand"


def batch_of(backbone, photo, mask, count=1, sources=SOURCE, targets=TARGET, seed=7) -> EditBatch:
    image = torch.from_numpy(photo).permute(2, 0, 1)[None] / 127.5 - 1
    images = [image.roll(3 * i, dims=-1) for i in range(count)]
    bits = [torch.cat(scale) for scale in zip(*map(backbone.encode_image, images), strict=True)]
    gate = edit_gate(torch.from_numpy(mask), backbone.schedule[-1]).expand(count, -1, -1, -1).contiguous()
    return EditBatch(
        bits,
        gate,
        torch.full((count,), float(mask.mean())),
        [sources] * count,
        [targets] * count,
        [torch.Generator().manual_seed(seed + i) for i in range(count)],
    )


@settings(max_examples=40)
@given(
    hnp.arrays("float32", (2, 3, 4, 4), elements=st.floats(-8, 8, width=32)),
    hnp.arrays("float32", (2, 1, 4, 4), elements=st.sampled_from([0.0, 1.0, 0.3, 0.5])),
)
def test_composition_is_exact_where_the_gate_is_closed_and_where_it_is_open(codes, gate):
    source, gate = torch.from_numpy(codes), torch.from_numpy(gate)
    target = source.flip(0) * 1.7 + 0.1
    mixed = compose(source, target, gate)
    closed, opened = (gate == 0).expand_as(mixed), (gate == 1).expand_as(mixed)
    assert torch.equal(mixed[closed], source[closed])
    assert torch.equal(mixed[opened], target[opened])
    assert torch.allclose(mixed, source + gate * (target - source), atol=1e-5)


@pytest.mark.parametrize(
    "setting", [{}, {"eta": 8.0, "delta": 1e9, "linf": 1e9}, {"contrast": "phrase"}, {"lock": "on"}]
)
def test_codes_outside_the_gate_are_the_sources_bit_by_bit_whatever_is_drawn(tiny, photo, left_mask, setting):
    batch = batch_of(tiny, photo, left_mask, count=2)
    outcome = edit_codes(tiny, EditConfig(**setting), batch)
    closed = (batch.gate == 0).expand_as(outcome.latent)
    assert closed.any()
    assert torch.equal(outcome.latent[closed], outcome.source_latent[closed])
    assert torch.equal(outcome.source_latent, tiny.bsq.sum(batch.source_bits))
    assert not torch.equal(outcome.latent, outcome.source_latent)
    assert max(row.flipped_outside for trace in outcome.trace for row in trace) > 0


def test_a_closed_gate_gives_the_source_and_an_open_one_without_tilt_gives_plain_generation(tiny, photo, left_mask):
    config = EditConfig(eta=0.0)
    closed = edit_codes(tiny, config, batch_of(tiny, photo, left_mask), torch.zeros(1, 1, 8, 8))
    assert torch.equal(closed.latent, tiny.bsq.sum(batch_of(tiny, photo, left_mask).source_bits))
    opened = edit_codes(tiny, config, batch_of(tiny, photo, left_mask), torch.ones(1, 1, 8, 8))
    # Plain classifier-free guidance, written out, with the same three rows and the same seed.
    cond = Cond.cat([tiny.text([TARGET]), tiny.null_text(1), tiny.text([SOURCE])])
    cache, generator, total = tiny.cache(), torch.Generator().manual_seed(7), None
    for k in range(5):
        x = tiny.start(cond) if k == 0 else tiny.next_input(total, k).repeat(3, 1, 1)
        logits = tiny.logits(x, cond, k, cache)
        d = (logits[..., 1] - logits[..., 0]).unflatten(1, tiny.schedule[k])
        guided = d[:1] + 3.0392 * (d[:1] - d[1:2])
        drawn = sample_bits(guided[0], generator=generator)[None]
        total = tiny.bsq.upsampled(drawn, k) if total is None else total + tiny.bsq.upsampled(drawn, k)
    assert torch.equal(opened.latent, total)
    assert torch.equal(generate(tiny, [TARGET], config, [7]), total)


@pytest.mark.parametrize("solver", ["exact", "bisect4"])
def test_one_edit_equals_the_literal_version_bit_by_bit(tiny, photo, left_mask, solver):
    config = EditConfig(cfg=1.5, eta=12.0, tau=0.7, solver=solver)
    outcome = edit_codes(tiny, config, batch_of(tiny, photo, left_mask))
    batch = batch_of(tiny, photo, left_mask)
    cond = Cond.cat([tiny.text([TARGET]), tiny.null_text(1), tiny.text([SOURCE])])
    cache, generator, total, limited = tiny.cache(), torch.Generator().manual_seed(7), torch.zeros(1, 6, 8, 8), 0
    for k, (h, w) in enumerate(tiny.schedule):
        d = predict(tiny, total, cond, k, cache)
        uniform = torch.rand(h, w, 6, generator=generator)
        inside = region(batch.gate, (h, w))[0]
        eta = literal.tilt_schedule(12.0, 5)[k]
        drawn = torch.zeros(1, h, w, 6, dtype=torch.bool)
        for place in [(i, j, c) for i in range(h) for j in range(w) for c in range(6)]:
            target, null, source = (d[row][place].item() for row in range(3))
            value, a = literal.edit_bit(target, null, source, bool(inside[place[:2]]), 1.5, eta, 0.3, 5.0, solver)
            limited += a < 1
            drawn[0][place] = literal.draw_bit(value, uniform[place].item(), 0.7, 0.97)
        assert torch.equal(outcome.bits[k], drawn)
        terms = [tiny.bsq.upsampled(bits, k) for bits in (batch.source_bits[k], drawn)]
        term = terms[0] + batch.gate * (terms[1] - terms[0])
        total = total + term
    assert limited > 50
    assert torch.allclose(outcome.latent, total, atol=1e-5)


def test_equal_prompts_tilt_nothing(tiny, photo, left_mask):
    same = edit_codes(tiny, EditConfig(), batch_of(tiny, photo, left_mask, sources="A [blue] glass cube on sand"))
    plain = edit_codes(tiny, EditConfig(eta=0.0), batch_of(tiny, photo, left_mask, sources="a blue glass cube on sand"))
    assert torch.equal(same.latent, plain.latent)
    assert all(row.eta == 0 and row.kl == 0 for row in same.trace[0])


def test_a_batch_gives_what_single_items_give(tiny, photo, left_mask):
    together = edit_codes(tiny, EditConfig(), batch_of(tiny, photo, left_mask, count=3))
    whole = batch_of(tiny, photo, left_mask, count=3)
    for i in range(3):
        alone = replace(
            whole,
            source_bits=[s[i : i + 1] for s in whole.source_bits],
            gate=whole.gate[i : i + 1],
            coverage=whole.coverage[i : i + 1],
            sources=whole.sources[:1],
            targets=whole.targets[:1],
            generators=[torch.Generator().manual_seed(7 + i)],
        )
        one = edit_codes(tiny, EditConfig(), alone)
        assert torch.allclose(one.latent[0], together.latent[i], atol=1e-5)
        assert [row.flipped_inside for row in one.trace[0]] == pytest.approx(
            [row.flipped_inside for row in together.trace[i]]
        )


def test_three_rows_predict_what_three_runs_predict(tiny, photo):
    bits = tiny.encode_image(torch.from_numpy(photo).permute(2, 0, 1)[None] / 127.5 - 1)
    prompts = [TARGET, "", "a red ball"]  # different lengths: the shorter are padded in the batch
    together = dict(teacher_forced(tiny, bits, Cond.cat([tiny.text([p]) for p in prompts]), tiny.cache()))
    for row, prompt in enumerate(prompts):
        for k, d in teacher_forced(tiny, bits, tiny.text([prompt]), tiny.cache()):
            assert torch.allclose(d[0], together[k][row], atol=1e-5)


def test_the_cached_scales_equal_one_block_causal_pass(tiny, photo):
    bits = tiny.encode_image(torch.from_numpy(photo).permute(2, 0, 1)[None] / 127.5 - 1)
    cond = tiny.text([TARGET])
    inputs = [tiny.start(cond), *(tiny.next_input(tiny.bsq.sum(bits[:k]), k) for k in range(1, 5))]
    logits = tiny.transformer(torch.cat(inputs, dim=1), cond)
    full = (logits[..., 1] - logits[..., 0])[0]
    cached = torch.cat([d[0].flatten(0, 1) for _, d in teacher_forced(tiny, bits, cond, tiny.cache())])
    assert torch.allclose(cached, full, atol=1e-5)


def test_the_trace_counts_what_happened(tiny, photo, left_mask):
    batch = batch_of(tiny, photo, left_mask)
    outcome = edit_codes(tiny, EditConfig(eta=6.0, linf=0.5), batch)
    trace = outcome.trace[0]
    assert [row.scale for row in trace] == [1, 2, 3, 4, 5]
    assert [row.grid for row in trace] == tiny.schedule
    assert [row.eta for row in trace] == pytest.approx(literal.tilt_schedule(6.0, 5))
    for k, row in enumerate(trace):
        inside = region(batch.gate, tiny.schedule[k])[0]
        flipped = (outcome.bits[k] ^ batch.source_bits[k])[0].float()
        for share, where in ((row.flipped_inside, inside), (row.flipped_outside, ~inside)):
            assert share == pytest.approx(flipped[where].mean().item() if where.any() else 0.0)
        assert 0 <= row.kl <= row.kl_max <= 0.3 + 1e-6
        assert 0 <= row.limited <= 1
    assert trace[3].limited > 0
    assert trace[3].clipped > 0
    assert (trace[4].kl, trace[4].limited, trace[4].clipped) == (0, 0, 0)


@pytest.mark.parametrize(
    ("lock", "share", "locked"), [("on", 0.1, 3), ("off", 0.9, 0), ("auto", 0.5, 3), ("auto", 0.49, 0)]
)
def test_the_structure_lock_keeps_the_sources_codes_at_the_first_scales(tiny, photo, left_mask, lock, share, locked):
    batch = replace(batch_of(tiny, photo, left_mask), coverage=torch.tensor([share]))
    outcome = edit_codes(tiny, EditConfig(lock=lock), batch)
    assert [row.locked for row in outcome.trace[0]] == [k < locked for k in range(5)]
    later = sum(
        (
            compose(
                tiny.bsq.upsampled(batch.source_bits[k], k),
                tiny.bsq.upsampled(outcome.bits[k], k),
                torch.zeros_like(batch.gate) if k < locked else batch.gate,
            )
            for k in range(5)
        ),
        start=torch.zeros(1, 6, 8, 8),
    )
    assert torch.allclose(outcome.latent, later, atol=1e-6)


def test_one_scale_has_no_tilt(make_tiny, photo, left_mask):
    backbone = make_tiny(schedule=[(1, 1)])
    backbone.image_size = (4, 4)
    outcome = edit_codes(backbone, EditConfig(), batch_of(backbone, photo[:4, :4], left_mask[8:12, :4]))
    assert outcome.trace[0][0].eta == 0


@pytest.mark.parametrize("null", ["empty", "cfg_uncond"])
def test_the_null_row_is_the_one_asked_for(tiny, null):
    latent = generate(tiny, [TARGET], EditConfig(null=null, cfg=9.0), [3])
    other = "cfg_uncond" if null == "empty" else "empty"
    assert not torch.equal(latent, generate(tiny, [TARGET], EditConfig(null=other, cfg=9.0), [3]))


def test_the_learned_null_text_has_as_many_vectors_as_each_prompt_has_tokens(tiny):
    prompts = ["a ball", "a blue glass cube on sand"]
    rows = null_rows(tiny, tiny.text(prompts), "cfg_uncond")
    assert rows.mask.sum(1).tolist() == [2, 6]
    learned = tiny.transformer.cfg_uncond
    for row, tokens in enumerate((2, 6)):
        alone = tiny.transformer.condition(learned[None, :tokens], torch.ones(1, tokens, dtype=torch.bool))
        torch.testing.assert_close(rows.pooled[row : row + 1], alone.pooled)
        torch.testing.assert_close(rows.tokens[row : row + 1, :tokens], alone.tokens)
    # Every method's guidance reads it: each prompt's row is the same alone as in the batch.
    config = EditConfig(null="cfg_uncond")
    together = generate(tiny, prompts, config, [1, 2])
    for row, prompt in enumerate(prompts):
        torch.testing.assert_close(generate(tiny, [prompt], config, [row + 1])[0], together[row])


def test_logits_that_are_not_finite_stop_with_the_number_of_the_scale(make_tiny, photo, left_mask):
    backbone = make_tiny()
    clean = backbone.logits
    backbone.logits = lambda x, cond, k, cache: clean(x, cond, k, cache) + (torch.nan if k == 2 else 0.0)
    with pytest.raises(BitResEditError, match=r"scale 3 of 5 \(4x4\) are not finite"):
        edit_codes(backbone, EditConfig(), batch_of(backbone, photo, left_mask))
