"""Training: order of the data, schedules, a real kill and resume, and the record that is left."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from bitresedit.backbones.scene_var import SceneVAR
from bitresedit.bsq import MultiScaleBSQ
from bitresedit.errors import BitResEditError, CheckpointError
from bitresedit.optimisation import TrainingState, batch_indices, generator_for, learning_rate_factor
from bitresedit.recipes import RECIPES, recipe
from bitresedit.rendered import rendered_scenes, scene_at
from bitresedit.scene_model import caption_ids
from bitresedit.text import CANONICAL
from bitresedit.train import contact_sheet, train
from bitresedit.train_transformer import EncodedScenes, bit_loss, measure_bits, new_model, scale_weights, shortened
from papers_shared.errors import InputError

STEPS = 40
SLOW = replace(
    recipe("smoke"),
    transformer_training=replace(recipe("smoke").transformer_training, steps=STEPS),
    tokenizer_training=replace(recipe("smoke").tokenizer_training, steps=STEPS),
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("train") / "run"
    return folder, train(SLOW, folder, precision="fp32", every=STEPS)


class Stopped(Exception):
    """Stands for a fault in the middle of a run."""


def stop_after(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let so many steps happen, whatever the stage."""
    clean, left = TrainingState.update, iter(range(steps))

    def update(state: TrainingState, *args: Any) -> None:
        if next(left, None) is None:
            raise Stopped
        clean(state, *args)

    monkeypatch.setattr(TrainingState, "update", update)


def test_training_stopped_in_both_stages_resumes_to_the_weights_of_an_uninterrupted_one(tmp_path, monkeypatch):
    # Checkpoints appear whole or not at all (papers_shared kills writers to prove it), so that what an exception
    # leaves on disk is what a kill leaves.
    plan, folder, whole = recipe("smoke"), tmp_path / "run", tmp_path / "whole"
    steps = plan.tokenizer_training.steps
    result = train(plan, whole, precision="fp32", every=steps)
    for stage, stop, kept in (("tokenizer.pt", 5, 3), ("transformer.pt", steps - 3 + 5, 3)):
        with monkeypatch.context() as patched:
            stop_after(stop, patched)
            with pytest.raises(Stopped):
                train(plan, folder, precision="fp32", every=3, resume=folder.exists())
        assert torch.load(folder / stage, weights_only=True)["step"] == kept
    resumed = train(plan, folder, precision="fp32", resume=True, every=steps)
    assert resumed.weights.read_bytes() == result.weights.read_bytes()
    for stage in ("tokenizer.pt", "transformer.pt"):
        losses = [torch.load(f / stage, weights_only=True)["losses"] for f in (folder, whole)]
        assert losses[0] == losses[1]
        assert len(losses[0]) == steps


def test_record_tells_what_was_run_and_measured(finished):
    folder, result = finished
    record = json.loads(result.record.read_text())
    assert record["seed"] == 0
    assert record["precision"]["used"] == "fp32"
    assert record["data"]["sha256"] == rendered_scenes(SLOW, 0, folder).digest
    assert record["tokenizer"]["steps"] == record["transformer"]["steps"] == STEPS
    assert record["gates"]["tokenizer_psnr"]["at_least"] == 32.5
    assert record["gates"] == result.gates
    assert result.figure.stat().st_size > 0
    assert result.samples.stat().st_size > 0


def test_weights_read_back_give_the_picture_size_and_metadata(finished):
    from safetensors import safe_open

    _, result = finished
    assert SceneVAR.load(result.weights).image_size == (32, 32)
    with safe_open(result.weights, framework="pt") as file:
        metadata = file.metadata()
        assert {file.get_tensor(name).dtype for name in file.keys()} == {torch.float16}  # noqa: SIM118
    assert metadata["recipe"] == "smoke"
    assert metadata["seed"] == "0"
    assert len(metadata["data_sha256"]) == 64


def test_both_losses_fall(finished):
    folder, _ = finished
    for stage in ("tokenizer.pt", "transformer.pt"):
        losses = torch.load(folder / stage, weights_only=True)["losses"]
        assert np.mean(losses[-10:]) < np.mean(losses[:10])


def test_a_folder_with_files_is_refused_without_resume_or_force(finished):
    folder, _ = finished
    with pytest.raises(InputError, match="not empty"):
        train(SLOW, folder, precision="fp32")


def test_checkpoint_of_other_settings_is_refused(tmp_path):
    model = torch.nn.Linear(2, 2)
    optimiser = torch.optim.AdamW(model.parameters())
    TrainingState(tmp_path / "a.pt", model, [optimiser], {"steps": 3}, 0.9).save()
    with pytest.raises(CheckpointError, match="other settings"):
        TrainingState(tmp_path / "a.pt", model, [optimiser], {"steps": 4}, 0.9).restore()


def test_every_epoch_visits_every_item_once_and_differs():
    epochs = [torch.cat([batch_indices(12, 4, step, 0, 1) for step in range(e * 3, e * 3 + 3)]) for e in range(2)]
    for epoch in epochs:
        assert sorted(epoch.tolist()) == list(range(12))
    assert not torch.equal(*epochs)
    with pytest.raises(ValueError, match="as many items"):
        batch_indices(3, 4, 0, 0, 1)


def test_generators_of_steps_stages_and_seeds_are_distinct_and_repeat():
    draws = {
        float(torch.rand((), generator=generator_for(seed, stage, step), dtype=torch.float64))
        for seed in range(3)
        for stage in range(3)
        for step in range(3)
    }
    assert len(draws) == 27
    first, second = (torch.rand(3, generator=generator_for(1, 2, 3)) for _ in range(2))
    assert torch.equal(first, second)


def test_rate_warms_up_then_falls_to_zero_along_a_cosine():
    values = [learning_rate_factor(step, 100, 10) for step in range(101)]
    assert values[:10] == sorted(values[:10])
    assert values[10] == 1
    assert values[55] == pytest.approx(0.5)
    assert values[100] == pytest.approx(0)
    assert values[10:] == sorted(values[10:], reverse=True)


def test_a_restart_repeats_the_schedule_at_its_own_peak_and_leaves_the_first_cycle_alone():
    whole = [learning_rate_factor(step, 250, 10, 100, 0.5) for step in range(251)]
    assert whole[:100] == [learning_rate_factor(step, 100, 10) for step in range(100)]
    assert whole[100:] == [0.5 * learning_rate_factor(step, 150, 10) for step in range(151)]


def test_a_scene_of_the_training_set_needs_no_other():
    assert scene_at(3, 5) == scene_at(3, 5)
    assert len({scene_at(3, index).caption() for index in range(20)}) > 10


def test_bit_loss_is_the_cross_entropy_of_each_token_weighed_by_gain():
    bsq = MultiScaleBSQ([(1, 1), (1, 2)], 2, gains=[2.0, 1.0])
    weights = scale_weights(bsq)
    torch.testing.assert_close(weights, torch.tensor([1.5, 0.75, 0.75]))
    log_odds = torch.tensor([[[0.0, 2.0], [-1.0, 1.0], [3.0, 0.5]]])
    targets = [torch.tensor([[[[True, True]]]]), torch.tensor([[[[False, True], [True, False]]]])]
    signs = torch.tensor([[[1.0, 1.0], [-1.0, 1.0], [1.0, -1.0]]])
    each = torch.log1p(torch.exp(-signs * log_odds)).mean(-1)[0]
    torch.testing.assert_close(bit_loss(log_odds, targets, weights), (each * weights).mean())


def test_untrained_model_measures_about_log_two_at_every_scale():
    plan = recipe("smoke")
    bsq = MultiScaleBSQ(plan.tokenizer.schedule, plan.tokenizer.d)
    latents = torch.randn(5, 8, 8, 8, generator=torch.Generator().manual_seed(0))
    data = EncodedScenes(latents, [scene_at(0, index).shown for index in range(5)])
    measured = measure_bits(new_model(plan, 0), bsq, data)
    assert set(measured) == {"all", "scale1", "scale2", "scale3"}
    assert all(value == pytest.approx(np.log(2), abs=0.05) for value in measured.values())


def test_shortened_captions_keep_their_share_of_each_phrase():
    shown = [scene_at(0, index).shown for index in range(2000)]
    full = caption_ids([factors.caption() for factors in shown])
    assert torch.equal(shortened(shown, 0.0), full)
    captions = shortened(shown, 0.5, torch.Generator().manual_seed(0))
    in_full = (captions == full).all(dim=1).float().mean()
    assert float(in_full) == pytest.approx(0.5 + 0.5**6, abs=0.04)
    told = torch.tensor([CANONICAL.index("sky") in row for row in captions.tolist()])
    assert float(told.float().mean()) == pytest.approx(0.75, abs=0.04)
    named = [CANONICAL.index(f.shape) in row for f, row in zip(shown, captions.tolist(), strict=True)]
    assert all(named)


def test_contact_sheet_lays_pictures_out_in_rows():
    values = torch.linspace(-1, 1, 5)[:, None, None, None].expand(5, 3, 2, 2)
    sheet = contact_sheet(values, columns=3)
    assert sheet.shape == (4, 6, 3)
    assert sheet[0, 0].tolist() == [0, 0, 0]
    assert sheet[0, 4].tolist() == [128, 128, 128]
    assert sheet[2, 4].tolist() == [255, 255, 255]


def test_recipes_are_found_by_name_and_fit_the_wheel():
    assert set(RECIPES) >= {"scene96", "scene64"}
    with pytest.raises(BitResEditError, match="choose one of"):
        recipe("scene128")
