from __future__ import annotations

from importlib import resources
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as nnf
from safetensors.torch import save_file

from bitresedit.errors import CheckpointError
from bitresedit.probe import CLASSES, MAIN_FACTORS, Probe, _augmented, labels, to_tensor, train_probe
from bitresedit.scenes import SAMPLE, Factors, Scene, render, render_pair, sample_scene, silhouettes


@pytest.fixture(scope="module")
def probe() -> Probe:
    return Probe.load_default()


@pytest.fixture(scope="module")
def scenes() -> list[Scene]:
    rng = np.random.default_rng(987654)
    return [sample_scene(rng) if i % 2 else sample_scene(rng).mirrored() for i in range(64)]


@pytest.fixture(scope="module")
def images(scenes: list[Scene]) -> torch.Tensor:
    return to_tensor(render(scenes))


def test_the_bundled_probe_reads_unseen_scenes(probe: Probe, scenes: list[Scene], images: torch.Tensor) -> None:
    accuracy = probe.accuracy(images, scenes)
    assert accuracy["mean"] >= 0.95
    assert min(accuracy[name] for name in (*MAIN_FACTORS, "ground", "sky")) >= 0.92
    assert accuracy["mean"] == pytest.approx(np.mean([accuracy[name] for name in CLASSES]), abs=1e-6)


def test_it_reads_pictures_as_soft_as_a_tokenizer_leaves_them(
    probe: Probe, scenes: list[Scene], images: torch.Tensor
) -> None:
    soft = nnf.interpolate(nnf.avg_pool2d(images, 2), scale_factor=2, mode="bilinear")
    noise = 0.04 * torch.randn(images.shape, generator=torch.Generator().manual_seed(0))
    assert probe.accuracy(soft + noise, scenes)["mean"] >= 0.92


def test_it_reads_the_main_object_alone_in_a_mask(probe: Probe, scenes: list[Scene], images: torch.Tensor) -> None:
    mask = torch.from_numpy(np.stack([silhouettes(scene)[0] for scene in scenes]))
    loose = nnf.max_pool2d(mask[:, None].float(), 7, stride=1, padding=3)[:, 0] > 0
    accuracy = probe.accuracy(images, scenes, loose)
    assert np.mean([accuracy[name] for name in MAIN_FACTORS]) >= 0.92


def test_pixels_outside_the_mask_do_not_matter(probe: Probe, images: torch.Tensor) -> None:
    mask = torch.zeros(96, 96, dtype=torch.bool)
    mask[20:80, 10:90] = True
    altered = torch.where(mask, images[:4], -images[:4])
    a, b = probe.factors(images[:4], mask), probe.factors(altered, mask)
    for name in CLASSES:
        torch.testing.assert_close(a[name], b[name], rtol=0, atol=0)


def test_probabilities_sum_to_one_over_the_answers_of_each_factor(probe: Probe, images: torch.Tensor) -> None:
    for name, values in probe.factors(images[:8]).items():
        assert values.shape == (8, len(CLASSES[name]))
        torch.testing.assert_close(values.sum(1), torch.ones(8))


@pytest.mark.parametrize("size", [48, 192])
def test_pictures_of_other_sizes_are_read_alike(probe: Probe, scenes: list[Scene], size: int) -> None:
    accuracy = probe.accuracy(to_tensor(render(scenes[:8], size)), scenes[:8])
    assert accuracy["mean"] >= 0.85


def test_the_asked_probability_is_high_after_a_true_edit_and_low_before(probe: Probe) -> None:
    pair = render_pair(SAMPLE)
    images = to_tensor(np.stack((pair.source, pair.target)))
    before, after = probe.probability(images, [SAMPLE.changed] * 2)
    assert before < 0.1 < 0.9 < after


def test_asked_probabilities_are_means_over_the_asked_answers(probe: Probe, images: torch.Tensor) -> None:
    p = probe.factors(images[:2])
    targets = [{"colour": "red", "second_shape": None}, {"sky": "night"}]
    expected = [(p["colour"][0, 0] + p["second_shape"][0, -1]) / 2, p["sky"][1, -1]]
    torch.testing.assert_close(probe.probability(images[:2], targets), torch.stack(expected))


def test_labels_number_the_answers_as_the_picture_shows_them() -> None:
    facts = Factors("small", "red", "glass", "cone", "snow", "night", "blue", "ball", "left")
    scene = Scene(facts)
    expected = [0, 0, 2, 3, 4, 3, 5, 0, 0]
    assert labels([scene]).tolist() == [expected]
    assert labels([scene.mirrored()]).tolist() == [[*expected[:-1], 1]]
    assert labels([scene.changed(second_shape=None)]).tolist() == [[0, 0, 2, 3, 4, 3, 8, 4, 3]]
    assert labels([]).shape == (0, len(CLASSES))


def test_augmentation_swaps_the_side_exactly_where_it_flips_the_picture() -> None:
    n = 64
    images = torch.linspace(-1, 1, 96).expand(n, 3, 96, 96).contiguous()
    truth = labels([Factors("small", "red", "glass", "cone", "snow", "night", "blue", "ball", "left")]).repeat(n, 1)
    outlines = torch.ones(n, 48, 48, dtype=torch.bool)
    result, answers, _ = _augmented(images, truth, outlines, torch.Generator().manual_seed(0))
    flipped = result[..., 60:90].mean((1, 2, 3)) < result[..., 6:36].mean((1, 2, 3))
    assert 0 < flipped.sum() < n
    side = list(CLASSES).index("side")
    assert (answers[:, side] == flipped.long()).all()
    unchanged = [i for i in range(len(CLASSES)) if i != side]
    assert (answers[:, unchanged] == truth[:, unchanged]).all()


def test_augmentation_greys_the_surroundings_of_those_it_says() -> None:
    n = 64
    images = torch.full((n, 3, 96, 96), 0.8)
    outlines = torch.zeros(n, 48, 48, dtype=torch.bool)
    outlines[:, 20:28, 20:28] = True
    truth = torch.zeros(n, len(CLASSES), dtype=torch.int64)
    result, _, whole = _augmented(images, truth, outlines, torch.Generator().manual_seed(1))
    corner = result[:, :, 10:20, 10:20].abs().amax((1, 2, 3))
    assert 0 < (~whole).sum() < n / 2
    assert (corner[~whole] == 0).all()
    assert (corner[whole] > 0.5).all()
    assert (result[:, :, 44:52, 44:52] > 0.4).all()


def test_training_repeats_by_seed_and_lowers_the_loss(scenes: list[Scene], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bitresedit.probe.held_out_accuracy", lambda probe, seed: {"mean": 0.0})
    data = (scenes[:8], render(scenes[:8]))
    losses: list[float] = []

    def train() -> dict[str, torch.Tensor]:
        losses.clear()
        return train_probe(3, 9, lambda step, loss: losses.append(loss), data)[0].state_dict()

    first, second = train(), train()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert len(losses) == 9
    assert np.mean(losses[-3:]) < 0.9 * np.mean(losses[:3])


def test_the_bundled_file_is_small() -> None:
    with resources.as_file(resources.files("bitresedit") / "assets" / "probe.safetensors") as path:
        assert path.stat().st_size <= 300_000


def test_saved_weights_load_to_the_same_network(probe: Probe, tmp_path: Path, images: torch.Tensor) -> None:
    save_file(probe.half_state(), tmp_path / "again.safetensors")
    again = Probe.load(tmp_path / "again.safetensors")
    for name, values in probe.factors(images[:2]).items():
        torch.testing.assert_close(again.factors(images[:2])[name], values, rtol=0, atol=0)


def test_bad_weight_files_are_refused(probe: Probe, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="cannot load the probe"):
        Probe.load(tmp_path / "missing.safetensors")
    (tmp_path / "damaged.safetensors").write_bytes(b"no weights here")
    with pytest.raises(CheckpointError, match="damaged"):
        Probe.load(tmp_path / "damaged.safetensors")
    state = probe.half_state()
    state.pop("heads.bias")
    save_file(state, tmp_path / "short.safetensors")
    with pytest.raises(CheckpointError, match="Missing key"):
        Probe.load(tmp_path / "short.safetensors")
