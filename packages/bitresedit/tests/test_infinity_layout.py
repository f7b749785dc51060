"""Published names and shapes of Infinity, its schedules and rotary places, and what its autoencoder reaches."""

from __future__ import annotations

import cmath

import numpy as np
import pytest
import torch
from tiny_networks import TINY, oracle_positions, tiny_transformer, tiny_vae
from torch import nn

from bitresedit.backbones.infinity_schedule import BUDGETS, GRIDS, InfinitySchedule
from bitresedit.backbones.infinity_vae import InfinityVAE, VAEConfig, published_names
from bitresedit.backbones.infinity_weights import (
    MODELS,
    meta_transformer,
    meta_vae,
    published_transformer_names,
)
from bitresedit.errors import BitResEditError


def layout(depth: int, chunks: int, width: int, heads: int, d: int, text: int, pool: int, null: int) -> dict:
    """Write down the published names and shapes."""
    table = {
        "cfg_uncond": (null, text),
        "text_norm.weight": (text,),
        "text_proj_for_sos.ca.mat_q": (1, pool, width // pool),
        "text_proj_for_sos.ca.mat_kv.weight": (2 * width, text),
        "text_proj_for_sos.ca.v_bias": (width,),
        "text_proj_for_sos.ca.zero_k_bias": (width,),
        "text_proj_for_sos.ca.proj.weight": (width, width),
        "text_proj_for_sos.ca.proj.bias": (width,),
        "text_proj_for_ca.0.weight": (width, text),
        "text_proj_for_ca.0.bias": (width,),
        "text_proj_for_ca.2.weight": (width, width),
        "text_proj_for_ca.2.bias": (width,),
        "pos_start": (1, 1, width),
        "lvl_embed.weight": (15, width),
        "word_embed.weight": (width, d),
        "word_embed.bias": (width,),
        "shared_ada_lin.1.weight": (6 * width, width),
        "shared_ada_lin.1.bias": (6 * width,),
        "head_nm.ada_lin.1.weight": (2 * width, width),
        "head_nm.ada_lin.1.bias": (2 * width,),
        "head.weight": (2 * d, width),
        "head.bias": (2 * d,),
    }
    block = {
        "sa.scale_mul_1H11": (1, heads, 1, 1),
        "sa.mat_qkv.weight": (3 * width, width),
        "sa.q_bias": (width,),
        "sa.v_bias": (width,),
        "sa.zero_k_bias": (width,),
        "sa.proj.weight": (width, width),
        "sa.proj.bias": (width,),
        "ca.mat_q.weight": (width, width),
        "ca.mat_q.bias": (width,),
        "ca.mat_kv.weight": (2 * width, width),
        "ca.v_bias": (width,),
        "ca.zero_k_bias": (width,),
        "ca.proj.weight": (width, width),
        "ca.proj.bias": (width,),
        "ca_norm.weight": (width,),
        "ca_norm.bias": (width,),
        "ffn.fc1.weight": (4 * width, width),
        "ffn.fc1.bias": (4 * width,),
        "ffn.fc2.weight": (width, 4 * width),
        "ffn.fc2.bias": (width,),
        "ada_gss": (1, 1, 6, width),
    }
    for chunk in range(chunks):
        for j in range(depth // chunks):
            table |= {f"block_chunks.{chunk}.module.{j}.{name}": shape for name, shape in block.items()}
    return table


@pytest.mark.parametrize(
    ("config", "chunks", "sizes"),
    [
        (TINY, 2, (4, 2, 64, 4, 8, 64, 2, 12)),
        (MODELS["2b"], 8, (32, 8, 2048, 16, 32, 2048, 16, 512)),
        (MODELS["8b"], 8, (40, 8, 3584, 28, 56, 2048, 16, 512)),
    ],
    ids=["tiny", "2b", "8b"],
)
def test_names_and_shapes_are_the_published_ones(config, chunks, sizes):
    model = meta_transformer(config)
    names = published_transformer_names(model, chunks)
    found = {names[name]: tuple(value.shape) for name, value in model.state_dict().items()}
    assert found == layout(*sizes)


def test_published_names_follow_the_layer_count():
    names = published_transformer_names(meta_transformer(MODELS["2b"]))
    assert names["blocks.31.sa.q_bias"] == "block_chunks.7.module.3.sa.q_bias"
    assert names["blocks.4.ada_gss"] == "block_chunks.1.module.0.ada_gss"


def test_2b_shapes_quoted_by_the_paper_lineage():
    state = meta_transformer(MODELS["2b"]).state_dict()
    assert state["shared_ada_lin.1.weight"].shape == (12288, 2048)
    assert state["blocks.0.sa.mat_qkv.weight"].shape == (6144, 2048)
    assert state["head.weight"].shape == (64, 2048)
    assert state["text_proj_for_sos.ca.mat_q"].shape == (1, 16, 128)


def resblock(path: str, inputs: int, outputs: int) -> dict:
    table = {
        f"{path}.norm1.norm.weight": (inputs,),
        f"{path}.norm1.norm.bias": (inputs,),
        f"{path}.conv1.conv.weight": (outputs, inputs, 3, 3),
        f"{path}.conv1.conv.bias": (outputs,),
        f"{path}.norm2.norm.weight": (outputs,),
        f"{path}.norm2.norm.bias": (outputs,),
        f"{path}.conv2.conv.weight": (outputs, outputs, 3, 3),
        f"{path}.conv2.conv.bias": (outputs,),
    }
    if inputs != outputs:
        table |= {
            f"{path}.nin_shortcut.conv.weight": (outputs, inputs, 1, 1),
            f"{path}.nin_shortcut.conv.bias": (outputs,),
        }
    return table


def conv(path: str, inputs: int, outputs: int) -> dict:
    return {f"{path}.conv.weight": (outputs, inputs, 3, 3), f"{path}.conv.bias": (outputs,)}


@pytest.mark.parametrize(
    ("d", "widths"), [(32, (128, 256, 512, 512, 512)), (14, (128, 256, 512, 512))], ids=["2b", "8b"]
)
def test_vae_names_and_shapes_are_the_published_ones(d, widths):
    table = conv("encoder.conv_in", 3, 128) | conv("decoder.conv_in", d, 512)
    table |= conv("encoder.conv_out", 512, d) | conv("decoder.conv_out", 128, 3)
    for half, width in (("encoder", 512), ("decoder", 128)):
        table |= {f"{half}.norm_out.norm.weight": (width,), f"{half}.norm_out.norm.bias": (width,)}
        table |= resblock(f"{half}.mid.block_1", 512, 512) | resblock(f"{half}.mid.block_2", 512, 512)
    before, last = 128, len(widths) - 1
    for i, width in enumerate(widths):
        table |= resblock(f"encoder.down.{i}.block.0", before, width)
        table |= resblock(f"encoder.down.{i}.block.1", width, width)
        coarser = widths[min(i + 1, last)]
        table |= resblock(f"decoder.up.{i}.block.0", coarser, width)
        table |= resblock(f"decoder.up.{i}.block.1", width, width)
        table |= resblock(f"decoder.up.{i}.block.2", width, width)
        if i < last:
            table |= conv(f"encoder.down.{i}.downsample.conv", width, width)
        if i > 0:
            table |= conv(f"decoder.up.{i}.upsample.conv", width, width)
        before = width
    vae = meta_vae(VAEConfig(d=d, multipliers=tuple(w // 128 for w in widths)))
    names = published_names(vae)
    assert {names[name]: tuple(value.shape) for name, value in vae.state_dict().items()} == table


def test_2b_edits_512_pixels_within_12_gigabytes_in_bfloat16():
    """Weights, the cache of three rows, and the text encoder, counted; Flan-T5-XL's encoder has 1.22 G weights."""
    config, schedule = MODELS["2b"], InfinitySchedule(1.0, "0.25M")
    transformer = sum(value.numel() for value in meta_transformer(config).state_dict().values())
    vae = sum(value.numel() for value in meta_vae(VAEConfig()).state_dict().values())
    keys_and_values = 2 * 3 * config.depth * schedule.tokens * config.width
    # The autoencoder stays float32, and its widest layers hold an edit and its source at once, a few copies each.
    decoding = 2 * 4 * 512 * 512 * 128
    total = 2 * (transformer + keys_and_values + 1_220_000_000) + 4 * (vae + decoding)
    assert transformer == pytest.approx(2.2e9, rel=0.1)
    assert total < 12e9


@pytest.mark.parametrize(("budget", "tokens"), [("0.06M", 521), ("0.25M", 2521), ("0.60M", 6425), ("1M", 10521)])
def test_square_token_totals(budget, tokens):
    assert InfinitySchedule(1.0, budget).tokens == tokens


@pytest.mark.parametrize("ratio", sorted(GRIDS))
def test_every_schedule_has_its_ratio_at_each_budget_and_grows(ratio):
    for budget, scales in BUDGETS.items():
        schedule = InfinitySchedule(ratio, budget)
        height, width = schedule.image_size
        assert len(schedule.grids) == scales
        assert height / width == pytest.approx(ratio, abs=0.01)
        assert all(a[0] <= b[0] and a[1] <= b[1] for a, b in zip(schedule.grids, schedule.grids[1:], strict=False))
    inverse = min(GRIDS, key=lambda other: abs(other - 1 / ratio))
    assert GRIDS[inverse] == tuple((w, h) for h, w in GRIDS[ratio])


def test_the_nearest_ratio_is_chosen():
    assert InfinitySchedule.for_image(512, 512).ratio == 1.0
    assert InfinitySchedule.for_image(600, 800, "1M").grids[-1] == (54, 72)
    assert InfinitySchedule.for_image(3000, 2000).ratio == 1.5
    assert InfinitySchedule.for_image(2000, 3000).ratio == 0.666


@pytest.mark.parametrize(("ratio", "budget"), [(1.1, "1M"), (1.0, "2M")])
def test_unknown_shapes_are_refused_with_the_known_ones(ratio, budget):
    with pytest.raises(BitResEditError, match=r"1\.333|0\.25M"):
        InfinitySchedule(ratio, budget)


@pytest.mark.parametrize(("ratio", "budget"), [(1.0, "0.25M"), (1.333, "0.06M"), (0.666, "0.25M"), (1.25, "0.06M")])
def test_rotations_turn_half_the_pairs_by_row_and_half_by_column_of_the_1m_grid(ratio, budget):
    schedule, head_dim = InfinitySchedule(ratio, budget), 16
    model = tiny_transformer()
    model.set_schedule(schedule.grids, reference=schedule.reference)
    expected = [
        [cmath.exp(1j * p * 10000 ** (-2 * i / (head_dim // 2))) for p in position for i in range(head_dim // 4)]
        for h, w in schedule.grids
        for position in oracle_positions(ratio, h, w)
    ]
    np.testing.assert_allclose(model._rotations.numpy(), np.array(expected), atol=2e-5)


def without_norms(vae: InfinityVAE) -> InfinityVAE:
    for module in vae.modules():
        for name, child in list(module.named_children()):
            if isinstance(child, nn.GroupNorm):
                setattr(module, name, nn.Identity())
    return vae


def test_a_latent_cell_reaches_exactly_its_window_of_pixels():
    # Per side, at latent resolution: conv_in 1, two middle blocks 2 each, two level blocks 2 each = 9 cells.
    # Doubling turns the 19 x 19 window into 38 x 38 pixels; then conv 1, two blocks 2 each, conv_out 1 add 6.
    vae = without_norms(tiny_vae())
    latent = torch.randn(1, 8, 32, 32)
    other = latent.clone()
    other[0, :, 16, 16] += 1
    changed = (vae.decoder(latent) != vae.decoder(other)).any(dim=1)[0]
    rows, columns = (changed.any(dim=axis).nonzero().flatten() for axis in (1, 0))
    for reached in (rows, columns):
        assert (reached.min().item(), reached.max().item()) == (2 * (16 - 9) - 6, 2 * (16 + 9) + 1 + 6)


def test_group_norm_carries_a_small_change_everywhere():
    vae, latent = tiny_vae(), torch.randn(1, 8, 32, 32)
    other = latent.clone()
    other[0, :, 16, 16] += 1
    difference = (vae.decoder(latent) - vae.decoder(other)).abs().amax(dim=1)[0]
    assert difference[0, 0] > 0
    assert difference[0, 0] < 0.05 * difference.max()


def test_halving_pads_at_the_bottom_and_right_only():
    from bitresedit.backbones.infinity_vae import Halve

    halve = Halve(1)
    with torch.no_grad():
        halve.conv.weight.fill_(1.0)
        halve.conv.bias.zero_()
    out = halve(torch.arange(16.0).reshape(1, 1, 4, 4))[0, 0]
    # Window of output (i, j): rows 2i..2i+2 and columns 2j..2j+2 of 0..15, zero beyond the picture.
    assert out.tolist() == [[45.0, 39.0], [66.0, 50.0]]
