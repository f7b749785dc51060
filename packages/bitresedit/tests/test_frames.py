from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from bitresedit.errors import BitResEditError, MaskError
from bitresedit.frames import Frame, as_picture
from papers_shared.errors import InputError


def noise(height: int, width: int, channels: int = 3) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (height, width, channels), dtype=np.uint8)


@given(st.integers(1, 400), st.integers(1, 400), st.sampled_from([(96, 96), (64, 96), (96, 54)]))
def test_the_crop_is_centred_inside_and_as_large_as_its_shape_allows(height, width, size):
    frame = Frame.fit((height, width), size)
    left, top, right, bottom = frame.box
    assert 0 <= left < right <= width
    assert 0 <= top < bottom <= height
    assert right - left == width or bottom - top == height
    assert abs(left - (width - right)) <= 1
    assert abs(top - (height - bottom)) <= 1


def test_a_picture_of_the_right_size_passes_through_unchanged():
    pixels = noise(32, 32)
    frame = Frame.fit((32, 32), (32, 32))
    tensor = frame.pixels(Image.fromarray(pixels))
    assert tensor.shape == (1, 3, 32, 32)
    assert np.array_equal(np.asarray(frame.picture(tensor[0])), pixels)


def test_another_size_is_resized_and_comes_back_at_the_crops_size():
    frame = Frame.fit((100, 60), (32, 32))
    assert frame.box == (0, 20, 60, 80)
    assert frame.pixels(Image.fromarray(noise(100, 60))).shape == (1, 3, 32, 32)
    assert frame.picture(torch.zeros(3, 32, 32)).size == (60, 60)


def test_a_thin_mask_survives_the_reduction():
    mask = torch.zeros(400, 400, dtype=torch.bool)
    mask[:, 201] = True
    small = Frame.fit((400, 400), (32, 32)).mask(mask)
    assert small[:, 16].all()
    assert small.sum() == 32


def test_a_mask_outside_the_crop_is_refused():
    mask = torch.zeros(100, 60, dtype=torch.bool)
    mask[:10] = True
    with pytest.raises(MaskError, match=r"centred crop; that part is the box 0,20,60,80"):
        Frame.fit((100, 60), (32, 32)).mask(mask)


def test_the_forms_of_a_picture_agree():
    pixels = noise(8, 9)
    forms = [
        Image.fromarray(pixels),
        pixels,
        pixels / 255.0,
        torch.from_numpy(pixels / 127.5 - 1).permute(2, 0, 1),
        torch.from_numpy(pixels / 127.5 - 1).permute(2, 0, 1)[None].float(),
        torch.from_numpy(pixels).permute(2, 0, 1),
    ]
    for form in forms:
        assert np.array_equal(np.asarray(as_picture(form)), pixels)


@pytest.mark.parametrize(
    "bad", [torch.zeros(4, 8, 8), torch.zeros(2, 3, 8, 8), torch.full((3, 8, 8), 2.0), torch.full((3, 8, 8), torch.nan)]
)
def test_tensors_of_another_shape_or_range_are_refused(bad):
    with pytest.raises(BitResEditError):
        as_picture(bad)


def test_arrays_that_are_no_pictures_are_refused():
    with pytest.raises(InputError):
        as_picture(np.zeros((4, 4, 7), np.uint8))
