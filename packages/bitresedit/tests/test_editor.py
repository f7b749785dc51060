from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as nnf
from PIL import Image

from bitresedit.baselines import METHODS
from bitresedit.config import EditConfig
from bitresedit.editor import EditItem, Editor, psnr
from bitresedit.errors import MaskError, PromptError

SOURCE, TARGET = "a red metal ball on sand", "a blue glass cube on sand"


def test_an_edit_keeps_the_picture_beyond_the_decoders_reach_of_the_gate(tiny, photo, left_mask):
    result = Editor(tiny).edit(photo, SOURCE, TARGET, left_mask, seed=1)
    # The tiny decoder is one 3x3 convolution on the 8x8 grid and a pixel shuffle by 4.
    reached = nnf.max_pool2d((result.gate > 0).float(), 3, 1, 1)
    far = nnf.interpolate(reached, scale_factor=4, mode="nearest")[0, 0] == 0
    edited, rebuilt = np.asarray(result.image), np.asarray(result.reconstruction)
    assert far.any()
    assert np.array_equal(edited[far.numpy()], rebuilt[far.numpy()])
    assert not np.array_equal(edited, rebuilt)
    assert result.kept_difference() == 0.0


def test_the_same_seed_gives_the_same_edit_and_another_seed_another(tiny, photo, left_mask):
    editor = Editor(tiny)
    first, again, other = (editor.edit(photo, SOURCE, TARGET, left_mask, seed=s) for s in (5, 5, 6))
    assert np.array_equal(np.asarray(first.image), np.asarray(again.image))
    assert not np.array_equal(np.asarray(first.image), np.asarray(other.image))


@pytest.mark.parametrize("method", list(METHODS))
def test_a_batch_gives_what_single_edits_give(tiny, photo, left_mask, method):
    editor = Editor(tiny, method=METHODS[method])
    items = [EditItem(np.roll(photo, 4 * i, 1), SOURCE, TARGET, np.roll(left_mask, i, 0), seed=i) for i in range(3)]
    for item, together in zip(items, editor.edit_batch(items), strict=True):
        alone = editor.edit(item.image, item.source, item.target, item.mask, item.seed)
        assert torch.allclose(alone.latent, together.latent, atol=1e-5)
        assert all(torch.equal(a, b) for a, b in zip(alone.bits, together.bits, strict=True))


def test_photos_of_any_size_and_kind_come_back_at_the_crops_size(tiny, left_mask):
    wide = Image.effect_noise((90, 60), 50).convert("RGBA")
    result = Editor(tiny).edit(wide, SOURCE, TARGET, (20, 10, 40, 40))
    assert result.image.size == result.original.size == result.reconstruction.size == (60, 60)
    assert result.pixels.shape == (3, 32, 32)
    assert result.mask.shape == (32, 32)


def test_auto_masks_and_named_boxes_work_end_to_end(tiny, photo):
    for mask in ("auto", "4,4,20,20", (4, 4, 20, 20)):
        assert 0 < Editor(tiny).edit(photo, SOURCE, TARGET, mask).mask.float().mean() < 1


def test_pixel_composite_is_the_source_where_the_upsampled_gate_is_closed(tiny, photo, left_mask):
    big = Image.fromarray(photo).resize((96, 96))
    mask = np.kron(left_mask, np.ones((3, 3), bool))
    result = Editor(tiny, EditConfig(composite="pixel")).edit(big, SOURCE, TARGET, mask)
    weight = nnf.interpolate(result.gate, size=(96, 96), mode="bilinear")[0, 0].numpy()
    assert (weight == 0).any()
    assert np.array_equal(np.asarray(result.image)[weight == 0], np.asarray(big)[weight == 0])
    opened = np.asarray(Editor(tiny).edit(big, SOURCE, TARGET, mask).image)
    assert np.array_equal(np.asarray(result.image)[weight == 1], opened[weight == 1])
    assert result.background_psnr > Editor(tiny).edit(big, SOURCE, TARGET, mask).background_psnr


def test_wrong_input_is_refused_before_any_work(tiny, photo, left_mask):
    editor = Editor(tiny)
    with pytest.raises(PromptError, match="target prompt is empty"):
        editor.edit(photo, SOURCE, "  ", left_mask)
    with pytest.raises(PromptError, match="do not pair"):
        editor.edit(photo, SOURCE, "a [blue cube", left_mask)
    with pytest.raises(MaskError, match="mask selects no pixel"):
        editor.edit(photo, SOURCE, TARGET, np.zeros((32, 32), bool))


def test_equal_prompts_warn_and_use_guidance_only(tiny, photo, left_mask):
    with pytest.warns(UserWarning, match="guidance only"):
        result = Editor(tiny).edit(photo, TARGET, TARGET, left_mask)
    plain = Editor(tiny, EditConfig(eta=0.0)).edit(photo, SOURCE, TARGET, left_mask)
    assert all(row.eta == 0 for row in result.trace)
    # The source row differs, but nothing reads it when eta is 0.
    assert torch.equal(result.latent, plain.latent)


def test_the_backbones_own_settings_are_the_default(make_tiny):
    backbone = make_tiny()
    backbone.default_config = {"cfg": 2.5, "tau": 0.5}
    assert Editor(backbone).config == EditConfig(cfg=2.5, tau=0.5)
    assert Editor(backbone, EditConfig()).config == EditConfig()


def test_a_backbone_that_adapts_its_shape_is_asked_to(make_tiny, photo, left_mask):
    backbone, asked = make_tiny(), []
    backbone.fit = lambda height, width: asked.append((height, width))
    Editor(backbone).edit(photo, SOURCE, TARGET, left_mask)
    assert set(asked) == {(32, 32)}


def test_the_summary_is_plain_numbers(tiny, photo, left_mask):
    summary = Editor(tiny).edit(photo, SOURCE, TARGET, left_mask).summary()
    assert summary["kept_codes_differ_by"] == 0.0
    assert summary["mask_share"] == pytest.approx(left_mask.mean())
    assert len(summary["trace"]) == 5
    assert summary["seconds"] == pytest.approx(sum(row["seconds"] for row in summary["trace"]))


def test_psnr_is_the_textbook_value():
    reference = torch.zeros(3, 2, 2)
    image = torch.full((3, 2, 2), 0.2)
    assert psnr(image, reference) == pytest.approx(10 * np.log10(4 / 0.04))
    where = torch.tensor([[True, False], [False, False]])
    image[:, 0, 0] = 0.02
    assert psnr(image, reference, where) == pytest.approx(40.0)
    assert psnr(reference, reference) == float("inf")
    assert np.isnan(psnr(image, reference, torch.zeros(2, 2, dtype=torch.bool)))
