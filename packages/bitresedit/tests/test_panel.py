from __future__ import annotations

import numpy as np
import pytest
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
    assert titles == ["source", "mask and gate", "edit", "ground truth", "|edit − source| × 4"]
    shown = [np.asarray(axes.images[0].get_array()) for axes in figure.axes]
    assert np.array_equal(shown[0], photo)
    assert np.array_equal(shown[2], np.asarray(result.image))
    assert np.array_equal(shown[3], photo)
    change = 4 * np.abs(shown[2].astype(int) - photo)
    assert np.array_equal(shown[4], change.clip(0, 255))
    assert write_figure(tmp_path / "panel.png", figure, "caption").stat().st_size > 5000


def test_the_gate_keeps_the_colours_where_it_is_open_and_fades_the_rest(result, photo):
    shown = np.asarray(draw_panel(result).axes[1].images[0].get_array())
    opened = result.gate[0, 0].numpy()[3, 0]
    assert opened > 0.75
    assert np.abs(shown[12:14, 0:2].astype(int) - photo[12:14, 0:2]).max() <= 60
    faded = shown[:, 24:]
    assert (faded.max(-1) == faded.min(-1)).all()
    assert faded.min() > 150


def test_without_truth_there_are_four_pictures_and_a_wide_photo_keeps_its_shape(tiny, left_mask):
    wide = Editor(tiny).edit(Image.effect_noise((64, 40), 60), "a ball", "a cube", (20, 5, 40, 30))
    figure = draw_panel(wide)
    assert len(figure.axes) == 4
    assert figure.axes[0].images[0].get_array().shape[:2] == (40, 40)
