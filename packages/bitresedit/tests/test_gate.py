from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as nnf
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from scipy import ndimage

from bitresedit.errors import MaskError
from bitresedit.gate import auto_mask, disagreement, edit_gate, read_mask, region


def literal_gate(mask: np.ndarray, grid: tuple[int, int], width: int, sigma: float) -> np.ndarray:
    """The gate's definition with scipy's morphology and convolution instead of torch's."""
    dilated = ndimage.maximum_filter(mask.astype(np.float32), size=7, mode="constant")
    small = nnf.interpolate(torch.from_numpy(dilated)[None, None], size=grid, mode="bilinear")[0, 0].numpy()
    offset = np.arange(width) - width // 2
    kernel = np.exp(-(offset[:, None] ** 2 + offset[None] ** 2) / (2 * sigma**2))
    blurred = ndimage.convolve(small.astype(np.float64), kernel / kernel.sum(), mode="constant")
    return np.clip(blurred / blurred.max(), 0, 1)


@pytest.mark.parametrize(
    ("size", "grid", "width", "sigma"),
    [((128, 128), (32, 32), 5, 2.0), ((96, 96), (8, 8), 3, 0.7), ((96, 144), (24, 36), 5, 2.0)],
)
def test_gate_is_dilation_resampling_blur_and_division_by_the_maximum(size, grid, width, sigma):
    mask = np.zeros(size, dtype=bool)
    mask[20:60, 30:50] = True
    mask[70:75, 80:92] = True
    gate = edit_gate(torch.from_numpy(mask), grid)
    assert gate.shape == (1, 1, *grid)
    np.testing.assert_allclose(gate[0, 0].numpy(), literal_gate(mask, grid, width, sigma), atol=1e-6)


@settings(max_examples=40)
@given(st.integers(0, 95), st.integers(0, 95), st.integers(1, 90), st.integers(1, 90))
def test_gate_is_one_somewhere_and_in_range_for_every_box(top, left, height, width):
    mask = torch.zeros(96, 96, dtype=torch.bool)
    mask[top : top + height, left : left + width] = True
    gate = edit_gate(mask, (8, 8))
    assert gate.max() == 1
    assert gate.min() >= 0


def test_a_mask_that_falls_between_the_samples_keeps_its_cell():
    mask = torch.zeros(512, 512, dtype=torch.bool)
    mask[64, 64] = True  # 7 pixels after dilation; bilinear to 8x8 reads only two pixels in 64
    pixels = nnf.max_pool2d(mask.float()[None, None], 7, 1, 3)
    assert nnf.interpolate(pixels, size=(8, 8), mode="bilinear").max() == 0
    gate = edit_gate(mask, (8, 8))
    assert gate[0, 0, 1, 1] == 1
    assert gate[0, 0, 5:, 5:].max() == 0


def test_a_full_mask_is_open_in_the_middle_and_a_small_grid_is_not_covered_by_a_small_mask():
    assert edit_gate(torch.ones(96, 96, dtype=torch.bool), (8, 8))[0, 0, 1:7, 1:7].min() == pytest.approx(1)
    mask = torch.zeros(96, 96, dtype=torch.bool)
    mask[6:30, 6:30] = True
    assert (edit_gate(mask, (8, 8)) == 0).float().mean() > 0.5


@pytest.mark.parametrize("mask", [torch.zeros(16, 16, dtype=torch.bool), torch.zeros(16, 16)])
def test_an_empty_mask_is_refused(mask):
    with pytest.raises(MaskError, match="mask selects no pixel"):
        edit_gate(mask, (4, 4))


def test_region_is_where_the_resampled_gate_is_positive():
    mask = torch.zeros(96, 96, dtype=torch.bool)
    mask[:30, :30] = True
    gate = edit_gate(mask, (8, 8))
    assert torch.equal(region(gate, (8, 8))[0], gate[0, 0] > 0)
    coarse = nnf.interpolate(gate, size=(4, 4), mode="bilinear")[0, 0]
    assert torch.equal(region(gate, (4, 4))[0], coarse > 0)
    assert region(gate, (4, 4)).any()
    assert not region(gate, (4, 4)).all()


def box(top, left, bottom, right, size=(40, 60)):
    mask = np.zeros(size, dtype=bool)
    mask[top:bottom, left:right] = True
    return mask


@pytest.mark.parametrize("given_box", ["10,5,30,20", " 10, 5 ,30, 20", (10, 5, 30, 20), [10.2, 4.9, 30, 20]])
def test_boxes_are_columns_then_rows(given_box):
    assert np.array_equal(read_mask(given_box, (40, 60)).numpy(), box(5, 10, 20, 30))


def test_a_box_is_cut_at_the_border():
    assert np.array_equal(read_mask("-5,30,20,900", (40, 60)).numpy(), box(30, 0, 40, 20))


@pytest.mark.parametrize("given_box", ["30,5,10,20", "5,5,5,9", "60,0,70,10", "-9,-9,0,0", (1, 2, 3)])
def test_boxes_that_select_nothing_are_refused(given_box):
    with pytest.raises(MaskError):
        read_mask(given_box, (40, 60))


@pytest.mark.parametrize(("given_box", "shown"), [("0.1,0.1,0.4,0.4", "0.1,0.1,0.4,0.4"), ((0, 0, math.nan, 5), "nan")])
def test_a_refused_box_is_shown_as_it_was_given(given_box, shown):
    with pytest.raises(MaskError, match=shown):
        read_mask(given_box, (40, 60))


def test_the_same_mask_reads_the_same_from_every_form(tmp_path):
    mask = box(5, 10, 20, 30)
    path = tmp_path / "mask.png"
    Image.fromarray((mask * 255).astype(np.uint8)).save(path)
    colour = tmp_path / "colour.png"
    Image.fromarray(np.repeat((mask * 255).astype(np.uint8)[..., None], 3, -1)).save(colour)
    forms = [
        path,
        str(path),
        colour,
        mask,
        mask.astype(np.uint8),
        (mask * 255).astype(np.uint8),
        mask * 0.9,
        torch.from_numpy(mask),
        torch.from_numpy(mask)[None, None].float(),
    ]
    for form in forms:
        assert np.array_equal(read_mask(form, (40, 60)).numpy(), mask)


def test_soft_masks_are_cut_at_half():
    assert read_mask(np.array([[0.2, 0.5], [0.51, 1.0]]), (2, 2)).tolist() == [[False, False], [True, True]]
    assert read_mask(np.array([[40, 127], [128, 255]], np.uint8), (2, 2)).tolist() == [[False, False], [True, True]]


def test_a_picture_of_zeros_and_ones_is_a_mask_too(tmp_path):
    mask = box(5, 10, 20, 30)
    Image.fromarray(mask.astype(np.uint8)).save(tmp_path / "mask.png")
    with pytest.warns(UserWarning, match="0 and 1 only"):
        assert np.array_equal(read_mask(tmp_path / "mask.png", (40, 60)).numpy(), mask)


def test_another_size_is_resized_to_the_nearest_pixel_with_a_warning():
    mask = np.array([[True, False], [False, True]])
    with pytest.warns(UserWarning, match="2x2 and the picture 6x4"):
        laid = read_mask(mask, (4, 6))
    assert np.array_equal(laid.numpy(), np.kron(mask, np.ones((2, 3), bool)))


@pytest.mark.parametrize(
    "mask",
    ["nowhere.png", "", ".", np.zeros((4, 4)), np.zeros((2, 4, 4)) + 1, np.full((4, 4), np.nan)],
)
def test_unusable_masks_are_refused(mask):
    with pytest.raises(MaskError):
        read_mask(mask, (4, 4))


def test_disagreement_is_the_mean_change_of_probability_over_the_middle_scales(tiny, photo):
    image = torch.from_numpy(photo).permute(2, 0, 1)[None] / 127.5 - 1
    bits = tiny.encode_image(image)
    maps = []
    for text in ("a red ball", "a blue cube"):
        cond, cache, probabilities = tiny.text([text]), tiny.cache(), []
        for k in range(5):
            x = tiny.start(cond) if k == 0 else tiny.next_input(tiny.bsq.sum(bits[:k]), k)
            logits = tiny.logits(x, cond, k, cache)
            probabilities.append(logits.softmax(-1)[..., 1].unflatten(1, tiny.schedule[k]))
        maps.append(probabilities)
    want = torch.zeros(32, 32)
    for k in (2, 3, 4):
        change = (maps[0][k] - maps[1][k]).abs().mean(-1)
        want += nnf.interpolate(change[:, None], size=(32, 32), mode="bilinear")[0, 0] / 3
    got = disagreement(tiny, image, "a red ball", "a blue cube")
    assert torch.allclose(got, want, atol=1e-5)
    mask = auto_mask(tiny, image, "a red ball", "a blue cube")
    assert got[mask].mean() > got[~mask].mean()
    _, parts = ndimage.label(mask.numpy(), structure=np.ones((3, 3)))
    assert parts == 1
    assert np.array_equal(ndimage.binary_fill_holes(mask.numpy()), mask.numpy())


def test_auto_mask_of_equal_prompts_suggests_a_box(tiny, photo):
    image = torch.from_numpy(photo).permute(2, 0, 1)[None] / 127.5 - 1
    with pytest.raises(MaskError, match="--mask x0,y0,x1,y1"):
        auto_mask(tiny, image, "a red ball", "a red ball")
