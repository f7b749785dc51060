"""Reading published checkpoints: layouts, naming variants, refusal of code, and messages that name the keys."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from bitresedit.backbones.infinity_vae import InfinityVAE, VAEConfig, published_names
from bitresedit.backbones.infinity_weights import load_transformer, load_vae, published_transformer_names
from bitresedit.backbones.scene_var import SceneVAR
from bitresedit.checkpoint import describe, read
from bitresedit.errors import CheckpointError
from bitresedit.var_transformer import KVCache, VARConfig, VARTransformer

TINY = VARConfig(depth=4, width=64, heads=4, d=8, text_dim=64, pool_heads=2, null_tokens=12)
VAE = VAEConfig(d=8, channels=32, multipliers=(1, 2), blocks=2)
SCHEDULE = [(1, 1), (2, 2), (4, 4)]


@pytest.fixture(scope="module")
def transformer() -> VARTransformer:
    torch.manual_seed(0)
    return VARTransformer(TINY, SCHEDULE).requires_grad_(False).eval()


@pytest.fixture(scope="module")
def weights(transformer: VARTransformer) -> dict[str, Tensor]:
    """The transformer as published: two chunks of two blocks."""
    names = published_transformer_names(transformer, chunks=2)
    return {names[name]: value.clone() for name, value in transformer.state_dict().items()}


@pytest.fixture(scope="module")
def vae() -> InfinityVAE:
    torch.manual_seed(1)
    return InfinityVAE(VAE).requires_grad_(False).eval()


def logits(model: VARTransformer) -> Tensor:
    model.set_schedule(SCHEDULE, reference=(64, 64))
    torch.manual_seed(2)
    cond = model.condition(torch.randn(2, 5, 64), torch.ones(2, 5, dtype=torch.bool))
    cache, total = KVCache(), torch.randn(2, 8, 4, 4)
    first = model.logits(model.start(cond), cond, 0, cache)
    return torch.cat([first, model.logits(model.embed(total, 1), cond, 1, cache)], dim=1)


def save_flat(tensors: dict[str, Tensor], folder: Path) -> Path:
    torch.save(tensors, folder / "model.pth")
    return folder / "model.pth"


def save_legacy(tensors: dict[str, Tensor], folder: Path) -> Path:
    torch.save(tensors, folder / "model.pth", _use_new_zipfile_serialization=False)
    return folder / "model.pth"


def save_nested(tensors: dict[str, Tensor], folder: Path) -> Path:
    content = {"epoch": 3, "args": {"lr": 1e-4}, "trainer": {"gpt_fsdp": tensors, "config": {"depth": 4}}}
    torch.save(content, folder / "ar-ckpt.pth")
    return folder / "ar-ckpt.pth"


def save_safetensors(tensors: dict[str, Tensor], folder: Path) -> Path:
    save_file(tensors, folder / "model.safetensors")
    return folder / "model.safetensors"


def save_shards(tensors: dict[str, Tensor], folder: Path, suffix: str = ".bin", index: bool = True) -> Path:
    shards, weight_map = folder / "weights", {}
    shards.mkdir()
    for i in range(3):
        part = dict(list(tensors.items())[i::3])
        name = f"model-0000{i + 1}-of-00003{suffix}"
        if suffix == ".safetensors":
            save_file(part, shards / name)
        else:
            torch.save(part, shards / name)
        weight_map |= dict.fromkeys(part, name)
    if index:
        (shards / f"model{suffix}.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return shards


def save_safe_shards(tensors: dict[str, Tensor], folder: Path) -> Path:
    return save_shards(tensors, folder, ".safetensors")


def save_bare_shards(tensors: dict[str, Tensor], folder: Path) -> Path:
    return save_shards(tensors, folder, ".pth", index=False)


LAYOUTS = {
    save_flat: ("pth", ""),
    save_legacy: ("pth", ""),
    save_nested: ("pth", "trainer.gpt_fsdp"),
    save_safetensors: ("safetensors", ""),
    save_shards: ("sharded pth", ""),
    save_safe_shards: ("sharded safetensors", ""),
    save_bare_shards: ("sharded pth", ""),
}


@pytest.mark.parametrize("save", LAYOUTS, ids=lambda save: save.__name__)
def test_every_layout_loads_to_the_same_outputs(save: Callable, transformer, weights, tmp_path: Path):
    checkpoint = read(save(weights, tmp_path))
    assert (checkpoint.layout, checkpoint.nested) == LAYOUTS[save]
    assert torch.equal(logits(load_transformer(checkpoint.tensors)), logits(transformer))


def test_one_chunk_and_flat_blocks_load_too(transformer, tmp_path: Path):
    one = published_transformer_names(transformer, chunks=1)
    state = transformer.state_dict()
    for tensors in (state, {one[name]: value for name, value in state.items()}):
        assert torch.equal(logits(load_transformer(tensors)), logits(transformer))


def test_both_shapes_of_the_temperature_and_training_buffers_are_accepted(transformer, weights):
    other = {
        name: value.reshape(1, 1, -1, 1) if name.endswith("scale_mul_1H11") else value
        for name, value in weights.items()
    }
    other["attn_bias_for_masking"] = torch.zeros(1, 1, 5, 5)
    assert torch.equal(logits(load_transformer(other)), logits(transformer))


def vae_names(vae: InfinityVAE, style: str) -> dict[str, str]:
    names = published_names(vae)
    keeps_inner = {"inner": lambda own: True, "plain": lambda own: False, "mixed": lambda own: "down" in own}[style]
    return {own: long if keeps_inner(own) else own for own, long in names.items()}


@pytest.mark.parametrize("style", ["inner", "plain", "mixed"])
def test_vae_keys_may_lack_their_inner_segment(vae: InfinityVAE, style: str, tmp_path: Path):
    names = vae_names(vae, style)
    tensors = {names[name]: value for name, value in vae.state_dict().items()}
    tensors["quantizer.lfq.mask"] = torch.arange(8)
    torch.save({"vae": tensors, "step": 7}, tmp_path / "vae.pth")
    loaded = load_vae(read(tmp_path / "vae.pth").tensors)
    image = torch.randn(1, 3, 16, 16)
    assert loaded.config == VAE
    assert torch.equal(loaded.encode(image), vae.encode(image))
    assert torch.equal(loaded.decode(loaded.encode(image)), vae.decode(vae.encode(image)))
    assert loaded.encode(image).shape == (1, 8, 8, 8)


def test_missing_and_misshapen_keys_are_named_as_published(weights):
    broken = {name: value for name, value in weights.items() if name != "block_chunks.1.module.0.ca.v_bias"}
    broken["head.bias"] = torch.zeros(6)
    with pytest.raises(CheckpointError) as caught:
        load_transformer(broken)
    assert "missing block_chunks.1.module.0.ca.v_bias" in str(caught.value)
    assert "head.bias is [6], expected [16]" in str(caught.value)


def test_a_long_list_of_missing_keys_is_cut(weights):
    broken = {name: value for name, value in weights.items() if ".ca." not in name or name.startswith("text")}
    with pytest.raises(CheckpointError, match=r"and \d+ more"):
        load_transformer(broken)


def test_missing_vae_keys_are_named_as_published(vae: InfinityVAE):
    names = published_names(vae)
    tensors = {names[name]: value for name, value in vae.state_dict().items()}
    del tensors["decoder.up.1.upsample.conv.conv.bias"]
    with pytest.raises(CheckpointError, match=r"missing decoder\.up\.1\.upsample\.conv\.conv\.bias"):
        load_vae(tensors)
    del tensors["encoder.down.1.block.0.conv2.conv.weight"]
    with pytest.raises(CheckpointError, match=r"not an Infinity VAE: missing encoder\.down\.1\.block\.0\.conv2"):
        load_vae(tensors)


def test_another_models_sizes_are_named(weights):
    with pytest.raises(CheckpointError) as caught:
        load_transformer(weights, model="2b")
    assert "word_embed.weight: 8 bits of a token, expected 32" in str(caught.value)
    assert "pos_start: 64 width, expected 2048" in str(caught.value)
    with pytest.raises(CheckpointError, match="model '20b' is unknown; use one of 2b, 8b or auto"):
        load_transformer(weights, model="20b")


def test_a_file_of_the_other_kind_is_told(weights, vae: InfinityVAE):
    with pytest.raises(CheckpointError, match=r"not an Infinity transformer: missing pos_start"):
        load_transformer(vae.state_dict())
    with pytest.raises(CheckpointError, match=r"not an Infinity VAE: missing encoder\.conv_in\.conv\.weight"):
        load_vae(weights)


class Payload:
    """Unpickling this would run a command."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self):
        return os.system, (f"touch {self.marker}",)


def test_pickled_code_is_refused_and_not_run(weights, tmp_path: Path):
    marker = tmp_path / "ran"
    torch.save({**weights, "optimizer": Payload(marker)}, tmp_path / "evil.pth")
    with pytest.raises(CheckpointError, match=r"evil\.pth holds pickled code \(\w+\.system\), which is not run"):
        read(tmp_path / "evil.pth")
    assert not marker.exists()


@pytest.mark.parametrize("name", ["model.pth", "model.safetensors"])
@pytest.mark.parametrize("damage", [lambda data: data[: len(data) // 2], lambda data: b"not a checkpoint"])
def test_damaged_files_are_told(weights, tmp_path: Path, name: str, damage: Callable):
    path = tmp_path / name
    (save_file if path.suffix == ".safetensors" else torch.save)(weights, path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(CheckpointError, match=name):
        read(path)


def test_files_without_tensors_and_absent_files_are_told(tmp_path: Path):
    with pytest.raises(CheckpointError, match="no checkpoint at"):
        read(tmp_path / "none.pth")
    torch.save({"epoch": 3, "note": "x"}, tmp_path / "empty.pth")
    with pytest.raises(CheckpointError, match=r"no named tensors \(its keys: epoch, note\)"):
        read(tmp_path / "empty.pth")
    (tmp_path / "folder").mkdir()
    with pytest.raises(CheckpointError, match="holds no weights"):
        read(tmp_path / "folder")


def test_incomplete_shards_are_told(weights, tmp_path: Path):
    shards = save_shards(weights, tmp_path)
    index = shards / "model.bin.index.json"
    content = json.loads(index.read_text())
    content["weight_map"]["extra.weight"] = "model-00001-of-00003.bin"
    index.write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match=r"lack tensors that its index names: extra\.weight"):
        read(shards)
    (shards / "model-00002-of-00003.bin").unlink()
    with pytest.raises(CheckpointError, match=r"lacks shards .* model-00002-of-00003\.bin"):
        read(shards)
    index.write_text("{}")
    with pytest.raises(CheckpointError, match="is not an index of shards"):
        read(shards)


def test_shard_names_cannot_leave_their_folder(weights, tmp_path: Path):
    shards = save_shards(weights, tmp_path)
    torch.save({"x": torch.zeros(1)}, tmp_path / "outside.bin")
    (shards / "model.bin.index.json").write_text(json.dumps({"weight_map": {"x": "../outside.bin"}}))
    with pytest.raises(CheckpointError, match=r"lacks shards that its index names: outside\.bin"):
        read(shards)


def test_describe_a_transformer(transformer, weights, tmp_path: Path):
    table = describe(save_nested(weights, tmp_path))
    assert table["kind"] == "infinity-transformer"
    assert (table["layout"], table["nested"], table["dtype"]) == ("pth", "trainer.gpt_fsdp", "float32")
    sizes = {"model": "custom", "depth": 4, "chunks": 2, "width": 64, "heads": 4, "d": 8, "text_dim": 64, "levels": 15}
    assert {name: table[name] for name in sizes} == sizes
    buffers = 2 * 4 + 1
    assert table["parameters"] == sum(p.numel() for p in transformer.parameters()) + buffers * 64
    assert table["bytes"] == 4 * table["parameters"]
    assert table["missing"] == table["misshapen"] == table["unexpected"] == []


def test_describe_says_what_does_not_fit(weights, tmp_path: Path):
    broken = {name: value.bfloat16() for name, value in weights.items() if name != "head.weight"}
    broken["head.bias"] = torch.zeros(6)
    broken["surplus"] = torch.zeros(1)
    table = describe(save_flat(broken, tmp_path))
    assert table["dtype"] == "bfloat16+float32"
    assert table["missing"] == ["head.weight"]
    assert table["misshapen"] == ["head.bias is [6], expected [16]"]
    assert table["unexpected"] == ["surplus"]
    del broken["word_embed.weight"]
    assert describe(save_flat(broken, tmp_path))["missing"] == ["word_embed.weight"]


def test_describe_a_vae_and_something_else(vae: InfinityVAE, tmp_path: Path):
    torch.save({"vae": {**vae.state_dict(), "quantizer.lfq.mask": torch.arange(8)}}, tmp_path / "vae.pth")
    table = describe(tmp_path / "vae.pth")
    assert (table["kind"], table["nested"], table["d"], table["stride"]) == ("infinity-vae", "vae", 8, 2)
    assert table["multipliers"] == [1, 2]
    assert table["missing"] == []
    assert table["unexpected"] == ["quantizer.lfq.mask"]
    tensors = vae.state_dict()
    del tensors["decoder.conv_in.weight"]
    torch.save({"vae": tensors}, tmp_path / "vae.pth")
    assert describe(tmp_path / "vae.pth")["missing"] == ["decoder.conv_in.conv.weight"]
    save_file({"x": torch.zeros(2, 3)}, tmp_path / "x.safetensors")
    table = describe(tmp_path / "x.safetensors")
    assert (table["kind"], table["parameters"], table["tensors"]) == ("unknown", 6, 1)


def test_describe_a_scene_model_and_a_broken_one(scene_file: Path, tmp_path: Path):
    table, config = describe(scene_file), SceneVAR.load(scene_file).model.var.config
    assert (table["kind"], table["model"], table["dtype"]) == ("scene-var", "scene", "float16")
    assert (table["depth"], table["width"], table["d"]) == (config.depth, config.width, config.d)
    save_file(
        {"tokenizer.x": torch.zeros(1), "model.x": torch.zeros(1)}, tmp_path / "broken.safetensors", {"shapes": "{}"}
    )
    assert "does not describe a scene model" in describe(tmp_path / "broken.safetensors")["problem"]
