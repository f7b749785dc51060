"""The bundled backbone: protocol, weights, captions, batching, caching and damaged files."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file

from bitresedit.backbones import Backbone
from bitresedit.backbones.scene_var import SceneVAR
from bitresedit.config import EditConfig
from bitresedit.errors import CheckpointError, VocabularyError
from bitresedit.probe import Probe
from bitresedit.rendered import scene_at
from bitresedit.rollout import generate, teacher_forced
from bitresedit.scene_model import caption_ids
from bitresedit.scenes import Factors, render
from bitresedit.tokenizer import psnr
from papers_shared.artifacts import write_safetensors

CAPTIONS = [
    "a large blue metal ball on sand under a sunset sky, a red cone to the right",
    "a small green matte cube on tiles under a clear sky",
    "a large yellow striped cone on snow under a night sky",
]


@pytest.fixture(scope="module")
def backbone() -> SceneVAR:
    return SceneVAR.load_default()


@pytest.fixture(scope="module")
def held_out():
    # Places after the training set's 12,000 and the 512 that the curves were measured on.
    scenes = [scene_at(0, index) for index in range(20_000, 20_024)]
    pictures = torch.from_numpy(render(scenes, 96)).permute(0, 3, 1, 2).float() / 127.5 - 1
    return scenes, pictures


def test_it_is_a_backbone(backbone):
    assert isinstance(backbone, Backbone)
    assert backbone.image_size == (96, 96)
    assert backbone.schedule == backbone.bsq.schedule
    assert backbone.schedule[0] == (1, 1)


def test_unseen_scenes_are_reconstructed_well(backbone, held_out):
    _, pictures = held_out
    output = backbone.decode(backbone.bsq.sum(backbone.encode_image(pictures)))
    assert psnr(output, pictures).mean() > 32.5
    assert output.abs().max() <= 1


def test_true_captions_predict_the_bits_better_than_swapped_ones(backbone, held_out):
    scenes, pictures = held_out
    captions = [scene.caption() for scene in scenes]
    bits = backbone.encode_image(pictures)

    def nats(prompts: list[str]) -> float:
        total, count = 0.0, 0
        for k, d in teacher_forced(backbone, bits[:3], backbone.text(prompts), backbone.cache()):
            total += float(torch.nn.functional.softplus(torch.where(bits[k], -d, d)).sum())
            count += d.numel()
        return total / count

    true = nats(captions)
    assert true < nats(captions[1:] + captions[:1]) - 0.05
    assert true < nats([""] * len(captions)) - 0.02


def test_samples_show_the_asked_colour_and_shape(backbone):
    wanted = [scene_at(0, index).factors for index in range(30_000, 30_012)]
    config = EditConfig(**backbone.default_config)
    pictures = backbone.decode(generate(backbone, [f.caption() for f in wanted], config, range(12)))
    found = Probe.load_default().accuracy(pictures, wanted)
    assert found["colour"] >= 0.75
    assert found["shape"] >= 0.6


@torch.no_grad()
def test_cached_scales_equal_one_full_pass(backbone, held_out):
    _, pictures = held_out
    bits = backbone.encode_image(pictures[:2])
    cond = backbone.text(CAPTIONS[:2])
    cached = torch.cat([d.flatten(1, 2) for _, d in teacher_forced(backbone, bits, cond, backbone.cache())], dim=1)
    prefixes = [torch.zeros_like(backbone.bsq.sum(bits))]
    prefixes += [backbone.bsq.sum(bits[:k]) for k in range(1, len(bits))]
    full = backbone.model(prefixes, caption_ids(CAPTIONS[:2]))
    torch.testing.assert_close(cached, full, atol=2e-4, rtol=1e-5)


def test_a_batch_of_three_equals_three_runs(backbone):
    config = EditConfig(**backbone.default_config)
    together = generate(backbone, CAPTIONS, config, [1, 2, 3])
    for row, (caption, seed) in enumerate(zip(CAPTIONS, [1, 2, 3], strict=True)):
        alone = generate(backbone, [caption], config, [seed])
        torch.testing.assert_close(alone[0], together[row], atol=1e-5, rtol=0)


def test_empty_caption_is_the_unconditional_text(backbone):
    empty, null = backbone.text([""]), backbone.null_text(1)
    torch.testing.assert_close(empty.tokens, null.tokens)
    torch.testing.assert_close(empty.pooled, null.pooled)
    assert bool(empty.mask.all())


def test_synonyms_give_the_same_condition(backbone):
    a = backbone.text(["a big sphere"])
    b = backbone.text(["a large ball"])
    assert torch.equal(a.tokens, b.tokens)
    assert a.words[0][:3] == ("a", "large", "ball")


def test_colour_words_bind_to_their_noun(backbone):
    plain = "a large {} matte ball on sand under a clear sky, a {} cube to the left"
    both = backbone.text([plain.format("red", "blue"), plain.format("blue", "red")])
    assert not torch.allclose(both.pooled[0], both.pooled[1])


def test_unknown_word_is_named(backbone):
    with pytest.raises(VocabularyError, match="zebra"):
        backbone.text(["a zebra on sand"])


def test_half_precision_stays_close(backbone):
    half = SceneVAR.load_default(dtype=torch.bfloat16)
    cond, exact = half.text(CAPTIONS[:1]), backbone.text(CAPTIONS[:1])
    found = half.logits(half.start(cond), cond, 0, half.cache())
    expected = backbone.logits(backbone.start(exact), exact, 0, backbone.cache())
    assert found.dtype == torch.float32
    assert (found - expected).abs().mean() < 0.1 * expected.abs().mean()


def test_saved_weights_read_back_the_same(backbone, tmp_path):
    path = backbone.save(tmp_path / "a.safetensors", len(backbone.model.captions.layers.layers), {"seed": "0"})
    again = SceneVAR.load(path)
    for name, value in backbone.model.state_dict().items():
        assert torch.equal(again.model.state_dict()[name], value)
    assert path.stat().st_size < 8.4e6


def test_damaged_files_are_told_apart(backbone, tmp_path):
    path = backbone.save(tmp_path / "a.safetensors", 2, {})
    with pytest.raises(CheckpointError, match="no file"):
        SceneVAR.load(tmp_path / "b.safetensors")
    (tmp_path / "cut.safetensors").write_bytes(path.read_bytes()[:1000])
    with pytest.raises(CheckpointError, match="not a whole safetensors file"):
        SceneVAR.load(tmp_path / "cut.safetensors")
    write_safetensors(tmp_path / "other.safetensors", {"weight": torch.zeros(2)})
    with pytest.raises(CheckpointError, match="does not describe a scene model"):
        SceneVAR.load(tmp_path / "other.safetensors")
    tensors = load_file(path)
    del tensors["model.var.head.weight"]
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        metadata = file.metadata()
    write_safetensors(tmp_path / "less.safetensors", tensors, metadata)
    with pytest.raises(CheckpointError, match="lacks 1 weights"):
        SceneVAR.load(tmp_path / "less.safetensors")


def test_a_caption_of_factors_is_in_the_vocabulary(backbone):
    factors = Factors("large", "blue", "metal", "ball", "sand", "sunset")
    assert backbone.text([factors.caption()]).mask.sum() > 8


def test_loading_leaves_torchs_generator_alone_and_no_weight_without_values(scene_file):
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    models = SceneVAR.load(scene_file), SceneVAR.load_default()
    probe = Probe.load_default()
    assert torch.equal(torch.rand(2), expected)
    for module in (probe, *(part for model in models for part in (model.tokenizer, model.model))):
        assert not any(value.is_meta for value in (*module.parameters(), *module.buffers()))
