from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from matplotlib.path import Path
from PIL import Image

from bitresedit.editor import Editor
from bitresedit.panel import draw_panel
from papers_shared.artifacts import write_figure


@pytest.fixture
def result(tiny, photo, left_mask):
    return Editor(tiny).edit(photo, "a red ball", "a blue cube", left_mask)


def test_the_panel_shows_its_pictures_in_order(result, photo, tmp_path):
    figure = draw_panel(result, Image.fromarray(photo))
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == ["source", "mask and gate", "edit", "ground truth", "difference × 4"]
    shown = [np.asarray(axes.images[0].get_array()) for axes in figure.axes]
    assert np.array_equal(shown[0], photo)
    assert np.array_equal(shown[2], np.asarray(result.image))
    assert np.array_equal(shown[3], photo)
    change = 4 * np.abs(shown[2].astype(int) - photo).mean(-1)
    np.testing.assert_allclose(shown[4], change.clip(0, 255), atol=0.501)
    assert write_figure(tmp_path / "panel.png", figure, "caption").stat().st_size > 5000


def test_the_gate_keeps_the_colours_where_it_is_open_and_fades_the_rest(result, photo):
    shown = np.asarray(draw_panel(result).axes[1].images[0].get_array())
    opened = result.gate[0, 0].numpy()[3, 0]
    assert opened > 0.75
    assert np.abs(shown[12:14, 0:2].astype(int) - photo[12:14, 0:2]).max() <= 60
    faded = shown[:, 24:]
    assert (faded.max(-1) == faded.min(-1)).all()
    assert faded.min() > 150


def outlined(result) -> np.ndarray:
    """The pixels inside the drawn border."""
    [contour] = draw_panel(result).axes[1].collections
    size = result.mask.shape[0]
    places = (np.stack(np.meshgrid(np.arange(size), np.arange(size)), -1).reshape(-1, 2) + 0.5) / size
    inside = np.zeros(len(places), int)
    for path in contour.get_paths():
        for polygon in path.to_polygons(closed_only=True):
            inside += Path(polygon).contains_points(places)
    return inside.reshape(size, size) % 2 == 1


def test_the_outline_is_the_masks_border_without_teeth_and_specks(result):
    mask = np.zeros((32, 32), bool)
    mask[8:24, 10:26] = True
    ragged = mask.copy()
    ragged[8, 10:26:2] = False
    ragged[2, 3] = True
    for given in (mask, ragged):
        drawn = outlined(replace(result, mask=torch.from_numpy(given)))
        assert np.array_equal(drawn[9:23], mask[9:23])
        assert not drawn[:7].any()
    thin = np.zeros((32, 32), bool)
    thin[4:28, 16] = True
    assert np.array_equal(outlined(replace(result, mask=torch.from_numpy(thin))), thin)


def test_without_truth_there_are_four_pictures_and_a_wide_photo_keeps_its_shape(tiny, left_mask):
    wide = Editor(tiny).edit(Image.effect_noise((64, 40), 60), "a ball", "a cube", (20, 5, 40, 30))
    figure = draw_panel(wide)
    assert len(figure.axes) == 4
    assert figure.axes[0].images[0].get_array().shape[:2] == (40, 40)
