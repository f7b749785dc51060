from __future__ import annotations

import numpy as np
import pytest
import torch
from skimage.color import rgb2gray
from skimage.filters import sobel

from bitresedit.data import load_sample, sample_names, suite
from bitresedit.editor import Editor
from bitresedit.probe import CLASSES, Probe
from bitresedit.scores import COLUMNS, edge_distance, score_edits


class KnowingProbe(Probe):
    """Answers from a table, and notes where it was asked to look."""

    def __init__(self, **answers):
        super().__init__()
        self.answers, self.masks = answers, []

    def factors(self, images, mask=None):
        self.masks.append(mask)
        table = {}
        for name, classes in CLASSES.items():
            table[name] = torch.full((1, len(classes)), 0.1)
            if name in self.answers:
                table[name][0, classes.index(self.answers[name])] = 0.7
        return table


def test_an_edit_is_right_when_every_changed_factor_is_read_as_asked(tiny):
    sample = load_sample(size=32)
    result = Editor(tiny).edit(sample.image, "a ball", "a cube", sample.mask)
    assert sample.wanted == {"colour": "blue", "material": "glass", "shape": "cube"}
    probe = KnowingProbe(colour="blue", material="glass", shape="cube")
    [right] = score_edits([sample], [result], probe)
    assert tuple(right) == COLUMNS
    assert (right["target_correct"], right["source_probability"]) == (1.0, pytest.approx(0.1))
    assert right["target_probability"] == pytest.approx(0.7)
    assert torch.equal(probe.masks[0], result.mask[None])
    [half] = score_edits([sample], [result], KnowingProbe(colour="blue", material="metal", shape="cube"))
    assert half["target_correct"] == 0.0
    assert half["target_probability"] == pytest.approx(0.5)
    assert half["source_probability"] == pytest.approx(0.3)
    [blind] = score_edits([sample], [result], None)
    assert np.isnan(blind["target_correct"])
    assert blind["background_psnr"] == right["background_psnr"] == result.background_psnr


def test_surroundings_are_read_in_the_whole_picture(tiny):
    sample = load_sample("sky", size=32)
    result = Editor(tiny).edit(sample.image, "a ball", "a cube", sample.mask)
    probe = KnowingProbe(sky=sample.wanted["sky"])
    assert score_edits([sample], [result], probe)[0]["target_correct"] == 1.0
    assert probe.masks == [None]


def test_edge_distance_is_the_mean_difference_of_sobel_maps():
    a, b = (torch.rand(3, 16, 16, generator=torch.Generator().manual_seed(s)) * 2 - 1 for s in (0, 1))
    maps = [sobel(rgb2gray((x.permute(1, 2, 0).numpy() + 1) / 2)) for x in (a, b)]
    assert edge_distance(a, b) == pytest.approx(np.abs(maps[0] - maps[1]).mean())
    assert edge_distance(a, a) == 0


def test_suites_are_reproducible_nested_and_take_turns():
    short, long = suite(3, ("colour", "sky"), seed=5, size=32), suite(5, ("colour", "sky"), seed=5, size=32)
    assert [s.name for s in long] == ["colour-000", "sky-001", "colour-002", "sky-003", "colour-004"]
    for a, b in zip(short, long, strict=False):
        assert a.pair == b.pair
        assert np.array_equal(np.asarray(a.image), np.asarray(b.image))
    assert suite(1, seed=6, size=32)[0].pair != suite(1, seed=5, size=32)[0].pair


@pytest.mark.parametrize("name", sample_names())
def test_samples_change_nothing_outside_their_mask(name):
    sample = load_sample(name, size=48)
    before, after = np.asarray(sample.image), np.asarray(sample.truth)
    assert np.array_equal(before[~sample.mask], after[~sample.mask])
    assert not np.array_equal(before, after)
    assert sample.source != sample.target
