from __future__ import annotations

import numpy as np
import pytest
import torch

from bitresedit.baselines import METHODS, AttentionCache, aredit, smoothing_kernel
from bitresedit.config import EditConfig
from bitresedit.editor import Editor
from bitresedit.gate import edit_gate, region
from bitresedit.resedit import EditBatch
from bitresedit.rollout import generate
from bitresedit.var_transformer import Cond

SOURCE, TARGET = "a red metal ball on sand", "a blue glass cube on sand"


def batch_of(backbone, photo, mask, source=SOURCE, target=TARGET, seed=3) -> EditBatch:
    image = torch.from_numpy(photo).permute(2, 0, 1)[None] / 127.5 - 1
    gate = edit_gate(torch.from_numpy(mask), backbone.schedule[-1])
    return EditBatch(
        backbone.encode_image(image),
        gate,
        torch.tensor([float(mask.mean())]),
        [source],
        [target],
        [torch.Generator().manual_seed(seed)],
    )


def run(name, backbone, photo, mask, config=None):
    return METHODS[name](backbone, config or EditConfig(), batch_of(backbone, photo, mask))


def test_regenerate_is_plain_generation_of_the_target(tiny, photo, left_mask):
    outcome = run("regenerate", tiny, photo, left_mask, EditConfig(lock="on", eta=9.0))
    assert torch.equal(outcome.latent, generate(tiny, [TARGET], EditConfig(), [3]))


def test_the_ablations_switch_off_one_half_each(tiny, photo, left_mask):
    full = run("bitresedit", tiny, photo, left_mask)
    no_tilt = run("inpaint", tiny, photo, left_mask)
    no_gate = run("bitedit_only", tiny, photo, left_mask)
    closed = (batch_of(tiny, photo, left_mask).gate == 0).expand_as(full.latent)
    assert torch.equal(no_tilt.latent[closed], full.source_latent[closed])
    assert all(row.eta == 0 for row in no_tilt.trace[0])
    assert not torch.equal(no_gate.latent[closed], full.source_latent[closed])
    assert [row.eta for row in no_gate.trace[0]] == [row.eta for row in full.trace[0]]
    # Without a gate the edited latent is the sum of the drawn bits alone.
    assert torch.allclose(no_gate.latent, tiny.bsq.sum(no_gate.bits), atol=1e-5)


def test_smoothing_kernel_is_the_manhattan_ramp():
    gate = torch.zeros(9, 12)
    gate[4, 3] = 1.0
    gate[4, 4] = 0.4  # less than half: not a masked token
    kernel = smoothing_kernel(gate)[0, 0]
    for i in range(9):
        for j in range(12):
            distance = abs(i - 4) + abs(j - 3)
            want = 0.0 if distance <= 1 else 1.0 if distance > 4 else (distance - 1) / 4
            assert kernel[i, j] == pytest.approx(want)


def test_editinfinity_mixes_codes_by_the_kernel_at_every_scale(tiny, photo, left_mask):
    batch = batch_of(tiny, photo, left_mask)
    outcome = run("editinfinity_blend", tiny, photo, left_mask)
    kernel = smoothing_kernel(batch.gate[0, 0])
    want = kernel * tiny.bsq.sum(batch.source_bits) + (1 - kernel) * tiny.bsq.sum(outcome.bits)
    assert torch.allclose(outcome.latent, want, atol=1e-5)


def literal_aredit(backbone, batch, config, use_mask, keep=2, threshold=0.2):
    """Two passes without attention control, written out with partial sums and no cache across scales."""
    null = backbone.null_text(1)

    def guided(prompt, bits, k, cfg):
        cond, cache = Cond.cat([backbone.text([prompt]), null]), backbone.cache()
        for j in range(k + 1):
            x = backbone.start(cond) if j == 0 else backbone.next_input(backbone.bsq.sum(bits[:j]), j).repeat(2, 1, 1)
            logits = backbone.logits(x, cond, j, cache)
        d = (logits[..., 1] - logits[..., 0]).unflatten(1, backbone.schedule[k])
        return d[:1] + (cfg - 1) * (d[:1] - d[1:])

    edited, generator = [], torch.Generator().manual_seed(3)
    for k, source in enumerate(batch.source_bits):
        sign = torch.where(source, 1.0, -1.0)
        p_source = torch.sigmoid(sign * guided(SOURCE, batch.source_bits, k, 3.0) / config.tau)
        d = guided(TARGET, edited, k, config.cfg)
        p_target = torch.sigmoid(sign * d / config.tau)
        free = region(batch.gate, backbone.schedule[k])[..., None] if use_mask else p_source - p_target > threshold
        probability = torch.sigmoid(d / config.tau)
        uniform = torch.rand(d.shape[1:], generator=generator)
        drawn = (uniform < probability) & (probability > 0.03) | (probability >= 0.97)
        edited.append(torch.where(free, drawn, source) if k >= keep else source)
    return edited


@pytest.mark.parametrize("use_mask", [False, True])
def test_aredit_equals_its_literal_version(tiny, photo, left_mask, use_mask):
    config = EditConfig(cfg=2.5, tau=0.8)
    outcome = aredit(tiny, config, batch_of(tiny, photo, left_mask), use_mask=use_mask, inject_to=0)
    want = literal_aredit(tiny, batch_of(tiny, photo, left_mask), config, use_mask)
    assert all(torch.equal(got, bits) for got, bits in zip(outcome.bits, want, strict=True))
    assert torch.allclose(outcome.latent, tiny.bsq.sum(want), atol=1e-5)
    assert any(row.flipped_inside > 0 for row in outcome.trace[0])
    assert [row.locked for row in outcome.trace[0]] == [True, True, False, False, False]


def test_aredit_with_a_mask_keeps_every_bit_outside_it(tiny, photo, left_mask):
    outcome = run("aredit_mask", tiny, photo, left_mask)
    assert all(row.flipped_outside == 0 for row in outcome.trace[0])


def test_equal_prompts_with_equal_guidance_leave_no_bit_to_redraw(tiny, photo, left_mask):
    batch = batch_of(tiny, photo, left_mask, SOURCE, SOURCE)
    outcome = aredit(tiny, EditConfig(cfg=3.0), batch)
    assert torch.equal(outcome.latent, tiny.bsq.sum(batch.source_bits))


def test_injected_attention_is_the_first_passes_on_shared_words_only(tiny):
    cache = AttentionCache(pairs=[[(0, 0), (2, 1)], []], scale=4)
    first, second = torch.rand(4, 2, 5, 6), torch.rand(4, 2, 5, 7)
    assert cache.record(1, first) is first
    mixed = cache.inject(1, second)
    assert torch.equal(mixed[0, ..., [0, 1]], first[0, ..., [0, 2]])
    assert torch.equal(mixed[0, ..., 2:], second[0, ..., 2:])
    assert torch.equal(mixed[1:], second[1:])


def test_attention_control_changes_the_edit_and_only_on_small_grids(tiny, photo, left_mask):
    batches = [batch_of(tiny, photo, left_mask) for _ in range(3)]
    controlled, without, small = (
        aredit(tiny, EditConfig(), batch, inject_to=limit) for batch, limit in zip(batches, (16, 0, 4), strict=True)
    )
    assert not torch.equal(controlled.latent, without.latent)
    assert not torch.equal(controlled.latent, small.latent)


def test_all_methods_see_the_same_codes_masks_and_seeds(tiny, photo, left_mask):
    results = {
        name: Editor(tiny, method=m).edit(photo, SOURCE, TARGET, left_mask, seed=2) for name, m in METHODS.items()
    }
    first = results["bitresedit"]
    for result in results.values():
        assert torch.equal(result.source_latent, first.source_latent)
        assert torch.equal(result.gate, first.gate)
        assert result.latent.isfinite().all()
    kept = [name for name, result in results.items() if result.kept_difference() == 0]
    assert kept[:1] == ["bitresedit"]
    assert "regenerate" not in kept
    assert np.isfinite([r.background_psnr for r in results.values()]).all()
