"""The Infinity adapter: literal equations, cache, patches, text, precision, shapes and devices."""

from __future__ import annotations

import cmath
import math
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_networks import oracle_positions, tiny_transformer, tiny_vae

from bitresedit.backbones import Backbone
from bitresedit.backbones.infinity import Infinity, T5Text, find_parts, spread
from bitresedit.backbones.infinity_schedule import InfinitySchedule
from bitresedit.backbones.infinity_vae import VAEConfig
from bitresedit.backbones.infinity_weights import (
    load_transformer,
)
from bitresedit.editor import EditItem, Editor
from bitresedit.errors import BitResEditError, CheckpointError
from bitresedit.var_transformer import Cond, KVCache, VARTransformer


@pytest.fixture(scope="module")
def text_encoder(t5_folder: Path) -> T5Text:
    return T5Text(t5_folder)


@pytest.fixture
def infinity(text_encoder: T5Text) -> Infinity:
    return Infinity(tiny_transformer(), tiny_vae(), text_encoder, InfinitySchedule(1.0, "0.06M"))


def gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


def normalise(x: np.ndarray) -> np.ndarray:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6)


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max())
    return e / e.sum()


class Literal:
    """The published equations for one text, written with loops in double precision."""

    def __init__(self, model: VARTransformer, positions: list[list[tuple[int, int]]]) -> None:
        self.p = {name: value.double().numpy() for name, value in model.state_dict().items()}
        self.c, self.positions = model.config, positions

    def linear(self, name: str, x: np.ndarray) -> np.ndarray:
        return x @ self.p[f"{name}.weight"].T + self.p[f"{name}.bias"]

    def text(self, features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        scale = np.sqrt((features**2).mean(-1, keepdims=True) + 1e-6)
        text = features / scale * self.p["text_norm.weight"]
        tokens = self.linear("text_proj_for_ca.2", gelu(self.linear("text_proj_for_ca.0", text)))
        query = self.p["text_proj_for_sos.ca.mat_q"][0].reshape(1, -1)
        pooled = self.cross("text_proj_for_sos.ca", query, text, self.c.pool_heads)
        return pooled[0], tokens

    def cross(self, name: str, query: np.ndarray, text: np.ndarray, heads: int) -> np.ndarray:
        width, size = self.c.width, self.c.width // heads
        pair = text @ self.p[f"{name}.mat_kv.weight"].T
        keys, values = pair[:, :width], pair[:, width:] + self.p[f"{name}.v_bias"]
        out = np.zeros_like(query)
        for row in range(len(query)):
            for head in range(heads):
                part = slice(head * size, (head + 1) * size)
                weights = softmax(keys[:, part] @ query[row, part] / math.sqrt(size))
                out[row, part] = weights @ values[:, part]
        return self.linear(f"{name}.proj", out)

    def turned(self, x: np.ndarray, position: tuple[int, int]) -> np.ndarray:
        quarter, out = len(x) // 4, np.zeros_like(x)
        for pair in range(len(x) // 2):
            place = position[0] if pair < quarter else position[1]
            angle = place * 10000 ** (-2 * (pair % quarter) / (len(x) // 2))
            z = complex(x[2 * pair], x[2 * pair + 1]) * cmath.exp(1j * angle)
            out[2 * pair], out[2 * pair + 1] = z.real, z.imag
        return out

    def self_attention(self, name: str, x: np.ndarray, level: np.ndarray) -> np.ndarray:
        width, heads = self.c.width, self.c.heads
        size = width // heads
        qkv = x @ self.p[f"{name}.mat_qkv.weight"].T
        queries, keys, values = qkv[:, :width], qkv[:, width : 2 * width], qkv[:, 2 * width :]
        queries, values = queries + self.p[f"{name}.q_bias"], values + self.p[f"{name}.v_bias"]
        places = [position for scale in self.positions for position in scale][: len(x)]
        out = np.zeros_like(x)
        for head in range(heads):
            part = slice(head * size, (head + 1) * size)
            temperature = math.exp(min(self.p[f"{name}.scale_mul_1H11"].ravel()[head], math.log(100)))
            q = [self.turned(v / np.linalg.norm(v), at) for v, at in zip(queries[:, part], places, strict=True)]
            k = [self.turned(v / np.linalg.norm(v), at) for v, at in zip(keys[:, part], places, strict=True)]
            for row in range(len(x)):
                seen = level <= level[row]
                weights = softmax(np.array([temperature * q[row] @ k[j] for j in np.flatnonzero(seen)]))
                out[row, part] = weights @ values[seen, part]
        return self.linear(f"{name}.proj", out)

    def block(self, layer: int, x: np.ndarray, pooled: np.ndarray, tokens: np.ndarray, level: np.ndarray):
        name = f"blocks.{layer}"
        shared = self.linear("shared_ada_lin.1", silu(pooled)).reshape(6, -1)
        gate1, gate2, scale1, scale2, shift1, shift2 = self.p[f"{name}.ada_gss"][0, 0] + shared
        x = x + gate1 * self.self_attention(f"{name}.sa", normalise(x) * (1 + scale1) + shift1, level)
        affine = normalise(x) * self.p[f"{name}.ca_norm.weight"] + self.p[f"{name}.ca_norm.bias"]
        x = x + self.cross(f"{name}.ca", self.linear(f"{name}.ca.mat_q", affine), tokens, self.c.heads)
        hidden = gelu(self.linear(f"{name}.ffn.fc1", normalise(x) * (1 + scale2) + shift2))
        return x + gate2 * self.linear(f"{name}.ffn.fc2", hidden)

    def logits(self, features: np.ndarray, inputs: list[np.ndarray]) -> np.ndarray:
        """Give ``[L, d, 2]`` from text features and the resampled codes of scales 1, 2, ... as ``[cells, d]``."""
        pooled, tokens = self.text(features)
        x = [pooled[None] + self.p["pos_start"][0], *(self.linear("word_embed", e) for e in inputs)]
        level = np.repeat(np.arange(len(x)), [len(part) for part in x])
        x = np.concatenate(x) + self.p["lvl_embed.weight"][level]
        for layer in range(self.c.depth):
            x = self.block(layer, x, pooled, tokens, level)
        scale, shift = self.linear("head_nm.ada_lin.1", silu(pooled)).reshape(2, -1)
        return self.linear("head", normalise(x) * (1 + scale) + shift).reshape(len(x), -1, 2)


def test_logits_equal_the_literal_equations(infinity: Infinity):
    infinity.transformer.set_schedule([(1, 1), (2, 2), (4, 4)], reference=(64, 64))
    features, mask, words = infinity.text_encoder(["a red ball on sand"])
    cond = infinity.transformer.condition(features, mask, words)
    positions = [oracle_positions(1.0, n, n) for n in (1, 2, 4)]
    total = torch.randn(1, 8, 16, 16)
    e = [torch.nn.functional.interpolate(total, (n, n), mode="bilinear")[0].flatten(1).T for n in (2, 4)]
    expected = Literal(infinity.transformer, positions).logits(
        features[0].double().numpy(), [part.double().numpy() for part in e]
    )
    cache, x, found = infinity.cache(), infinity.start(cond), []
    for k in range(3):
        x = infinity.start(cond) if k == 0 else infinity.next_input(total, k)
        found.append(infinity.logits(x, cond, k, cache)[0])
    np.testing.assert_allclose(torch.cat(found).numpy(), expected, atol=5e-5)


def test_an_editor_keeps_the_source_codes_where_the_gate_is_closed(infinity: Infinity):
    assert isinstance(infinity, Backbone)
    image = (255 * torch.rand(32, 32, 3, generator=torch.Generator().manual_seed(0))).byte().numpy()
    mask = np.zeros((32, 32), dtype=bool)
    mask[4:12, 4:12] = True
    result = Editor(infinity).edit(image, "a red ball", "a blue ball", mask, seed=1)
    assert len(result.trace) == len(infinity.schedule)
    closed = result.gate[0, 0] == 0
    assert closed.any()
    latent = infinity.bsq.sum(infinity.encode_image(torch.from_numpy(image).permute(2, 0, 1)[None] / 127.5 - 1))
    assert torch.equal(result.latent[..., closed], latent[..., closed])
    assert not torch.equal(result.latent, latent)


@pytest.mark.parametrize(("ratio", "budget"), [(1.0, "0.06M"), (1.5, "0.06M")])
def test_cached_scales_equal_one_block_causal_pass(infinity: Infinity, ratio, budget):
    infinity.set_schedule(InfinitySchedule(ratio, budget))
    cond = infinity.text(["a red ball", "a blue cube on sand"])
    torch.manual_seed(3)
    latents = [torch.randn(2, 8, *infinity.schedule[-1]) for _ in infinity.schedule]
    inputs = [infinity.start(cond)]
    inputs += [infinity.next_input(latents[k], k) for k in range(1, len(latents))]
    cache = infinity.cache()
    cached = torch.cat([infinity.logits(x, cond, k, cache) for k, x in enumerate(inputs)], dim=1)
    torch.testing.assert_close(cached, infinity.transformer(torch.cat(inputs, dim=1), cond), atol=1e-5, rtol=1e-5)


def test_a_batch_equals_its_rows(infinity: Infinity):
    prompts = ["a red ball", "", "a blue cube on sand"]
    together = infinity.text(prompts)
    batch = infinity.logits(infinity.start(together), together, 0, infinity.cache())
    for i, prompt in enumerate(prompts):
        alone = infinity.text([prompt])
        single = infinity.logits(infinity.start(alone), alone, 0, infinity.cache())
        torch.testing.assert_close(batch[i : i + 1], single, atol=1e-5, rtol=1e-5)


def patched(text_encoder: T5Text) -> Infinity:
    vae = tiny_vae(VAEConfig(d=2, channels=32, multipliers=(1, 1), blocks=1))
    return Infinity(tiny_transformer(d=8), vae, text_encoder, InfinitySchedule(1.0, "0.06M"))


def test_a_patch_model_gives_one_token_a_code(text_encoder: T5Text):
    model = patched(text_encoder)
    assert model.schedule[:3] == [(2, 2), (4, 4), (8, 8)]
    assert model.image_size == (64, 64)
    cond, cache = model.text(["a red ball"]), model.cache()
    raw_cache = KVCache()
    for k in range(3):
        x = model.start(cond) if k == 0 else model.next_input(torch.randn(1, 2, 32, 32), k)
        logits = model.logits(x, cond, k, cache)
        raw = model.transformer.logits(x, cond, k, raw_cache)
        h, w = model.schedule[k]
        assert logits.shape == (1, h * w, 2, 2)
        for value in (0, 1):
            channels = raw[0, :, :, value].T.reshape(8, h // 2, w // 2)
            shuffled = torch.nn.functional.pixel_shuffle(channels, 2)
            torch.testing.assert_close(logits[0, :, :, value].T.reshape(2, h, w), shuffled)


def test_a_patch_model_reads_four_codes_a_token(text_encoder: T5Text):
    model = patched(text_encoder)
    total = torch.randn(1, 2, 32, 32)
    grid = torch.nn.functional.interpolate(total, (4, 4), mode="bilinear")[0]
    tokens = torch.stack(
        [
            torch.stack([grid[c, 2 * y + i, 2 * x + j] for c in range(2) for i in range(2) for j in range(2)])
            for y in range(2)
            for x in range(2)
        ]
    )
    torch.testing.assert_close(model.next_input(total, 1)[0], model.transformer.word_embed(tokens))


def test_encode_gives_bits_of_the_schedule_and_decode_an_image(infinity: Infinity):
    image = torch.rand(1, 3, 32, 32) * 2 - 1
    bits = infinity.encode_image(image)
    assert [tuple(b.shape) for b in bits] == [(1, h, w, 8) for h, w in infinity.schedule]
    latent = infinity.vae.encode(image)
    residual = latent - infinity.bsq.sum(bits)
    before = latent - infinity.bsq.sum(bits[:-1])
    # The last scale has the latent's own grid, so it leaves |R|^2 + 1 - 2 |R|_1 / sqrt(d) in each cell.
    expected = before.square().sum(1) + 1 - 2 * before.abs().sum(1) / math.sqrt(8)
    torch.testing.assert_close(residual.square().sum(1), expected, atol=1e-5, rtol=1e-5)
    decoded = infinity.decode(infinity.bsq.sum(bits))
    assert decoded.shape == (1, 3, 32, 32)
    assert decoded.abs().max() <= 1
    with pytest.raises(BitResEditError, match="expected an image of 32 x 32 pixels, got 48 x 32"):
        infinity.encode_image(torch.zeros(1, 3, 32, 48))


def test_fit_follows_the_image_shape(infinity: Infinity):
    assert infinity.fit(300, 200).image_size == (42, 28)
    assert infinity.schedule[3] == (6, 4)
    assert infinity.bsq.grid == (21, 14)


def test_pictures_of_several_shapes_are_edited_as_each_alone(infinity: Infinity):
    rng = np.random.default_rng(0)
    shapes = ((32, 32), (42, 28), (32, 32))
    items = [
        EditItem(rng.integers(0, 256, (*shape, 3), dtype=np.uint8), "a red ball", "a blue ball", (6, 6, 20, 20), seed=i)
        for i, shape in enumerate(shapes)
    ]
    together = Editor(infinity).edit_batch(items)
    assert [result.pixels.shape[1:] for result in together] == list(shapes)
    for item, result in zip(items, together, strict=True):
        [alone] = Editor(infinity).edit_batch([item])
        assert all(torch.equal(a, b) for a, b in zip(alone.bits, result.bits, strict=True))
        torch.testing.assert_close(alone.latent, result.latent, atol=1e-5, rtol=1e-5)


def test_the_two_null_texts(infinity: Infinity):
    empty, learned = infinity.null_text(2), infinity.null_text(2, "cfg_uncond", tokens=3)
    torch.testing.assert_close(empty.tokens, infinity.text(["", ""]).tokens)
    rows = infinity.transformer.cfg_uncond[:3].expand(2, -1, -1)
    mask = torch.ones(2, 3, dtype=torch.bool)
    torch.testing.assert_close(learned.pooled, infinity.transformer.condition(rows, mask).pooled)
    assert Cond.cat([empty, learned]).tokens.shape[:2] == (4, 3)


def test_text_pieces_stand_at_their_tokens(infinity: Infinity):
    cond = infinity.text(["a red ball", "sand"])
    assert cond.words == (("a", "red", "ball", "</s>"), ("sand", "</s>", "", ""))
    assert cond.mask.sum(1).tolist() == [4, 2]


def test_bfloat16_keeps_norms_and_head_wide_and_stays_near_float32(text_encoder: T5Text):
    source = tiny_transformer()
    state = {name: value.clone() for name, value in source.state_dict().items()}
    narrow = load_transformer(state, torch.bfloat16)
    kept = {"head.weight", "blocks.0.ca_norm.weight", "blocks.0.ada_gss", "shared_ada_lin.1.weight", "pos_start"}
    dtypes = {name: value.dtype for name, value in narrow.state_dict().items()}
    assert all(dtypes[name] == torch.float32 for name in kept)
    assert dtypes["blocks.0.sa.mat_qkv.weight"] == dtypes["blocks.3.ffn.fc2.bias"] == torch.bfloat16
    schedule = InfinitySchedule(1.0, "0.06M")
    wide = Infinity(source, tiny_vae(), text_encoder, schedule)
    half = Infinity(narrow, tiny_vae(), text_encoder, schedule, torch.bfloat16)
    outputs = []
    for model in (wide, half):
        cond, cache = model.text(["a red ball"]), model.cache()
        first = model.logits(model.start(cond), cond, 0, cache)
        second = model.logits(model.next_input(torch.ones(1, 8, 16, 16), 1), cond, 1, cache)
        outputs.append(torch.cat([first, second], dim=1))
    assert outputs[1].dtype == torch.float32
    spread = outputs[0].std()
    assert (outputs[0] - outputs[1]).abs().max() < 0.1 * spread


def test_other_precisions_are_refused(text_encoder: T5Text):
    with pytest.raises(BitResEditError, match="float32 or bfloat16"):
        Infinity(tiny_transformer(), tiny_vae(), text_encoder, dtype=torch.float16)


def test_transformer_and_vae_of_different_codes_are_refused(text_encoder: T5Text):
    with pytest.raises(CheckpointError, match=r"word_embed\.weight takes 8 bits .* decoder\.conv_in"):
        Infinity(tiny_transformer(), tiny_vae(VAEConfig(d=3, channels=32, multipliers=(1,))), text_encoder)


def test_a_missing_extra_is_named(monkeypatch, t5_folder: Path):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(BitResEditError, match=r"bitresedit\[infinity\]"):
        T5Text(t5_folder)


def test_a_folder_without_t5_is_named(tmp_path: Path):
    with pytest.raises(CheckpointError, match="no T5 tokenizer"):
        T5Text(tmp_path)


def test_a_t5_without_some_of_its_weights_is_refused(t5_folder: Path, tmp_path: Path):
    folder = shutil.copytree(t5_folder, tmp_path / "t5")
    tensors = load_file(folder / "model.safetensors")
    save_file(
        {k: v for k, v in tensors.items() if "layer_norm" not in k}, folder / "model.safetensors", {"format": "pt"}
    )
    with pytest.raises(CheckpointError, match=r"no T5 encoder .* weights are missing"):
        T5Text(folder)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_blocks_spread_over_devices_give_the_same_logits(text_encoder: T5Text, tmp_path: Path, dtype):
    pytest.importorskip("accelerate")
    plain = tiny_transformer()
    model = load_transformer(plain.state_dict(), dtype)
    here = Infinity(load_transformer(plain.state_dict(), dtype), tiny_vae(), text_encoder, dtype=dtype)
    # A disk counts as a second device, and there is one everywhere.
    where = {str(i): "disk" if i % 2 else "cpu" for i in range(4)}
    there = Infinity(spread(model, "cpu", where, tmp_path), tiny_vae(), text_encoder, dtype=dtype)
    results = []
    for each in (here, there):
        cond, cache = each.text(["a red ball"]), each.cache()
        each.logits(each.start(cond), cond, 0, cache)
        results.append(each.logits(each.next_input(torch.ones(1, 8, 32, 32), 1), cond, 1, cache))
    torch.testing.assert_close(*results)


def test_parts_are_found_by_their_published_names(tmp_path: Path):
    with pytest.raises(CheckpointError, match=r"no transformer \(infinity\*\)"):
        find_parts(tmp_path)
    for name in ("infinity_2b_reg.pth", "infinity_vae_d32reg.pth"):
        (tmp_path / name).touch()
    (tmp_path / "flan-t5-xl").mkdir()
    assert [path.name for path in find_parts(tmp_path)] == [
        "infinity_2b_reg.pth", "infinity_vae_d32reg.pth", "flan-t5-xl",
    ]  # fmt: skip
    (tmp_path / "infinity_8b_weights").mkdir()
    with pytest.raises(CheckpointError, match="more than one transformer"):
        find_parts(tmp_path)
