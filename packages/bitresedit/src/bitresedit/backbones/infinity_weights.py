"""Names and sizes of the published Infinity weights, and the models built from them.

The transformer here keeps its blocks in one flat list; published files keep them in chunks, so that layer
``l = n c + j`` of :class:`~bitresedit.var_transformer.VARTransformer`, ``blocks.{l}``, is stored as
``block_chunks.{c}.module.{j}`` with ``n`` blocks a chunk. All other names agree.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from bitresedit.backbones.infinity_vae import InfinityVAE, VAEConfig, published_names
from bitresedit.errors import CheckpointError
from bitresedit.shapes_only import shapes_only
from bitresedit.var_transformer import VARConfig, VARTransformer

CHUNKS = 8
MODELS = {
    "2b": VARConfig(depth=32, width=2048, heads=16, d=32, text_dim=2048, pool_heads=16),
    "8b": VARConfig(depth=40, width=3584, heads=28, d=56, text_dim=2048, pool_heads=16),
}
"""Published transformers; 8B predicts four 14-bit codes, a 2 x 2 patch of the latent, from one token."""

SIZE_KEYS = (
    "pos_start",
    "word_embed.weight",
    "cfg_uncond",
    "lvl_embed.weight",
    "text_proj_for_sos.ca.mat_q",
    "blocks.0.sa.scale_mul_1H11",
    "blocks.0.ffn.fc1.weight",
)
"""Tensors of a transformer that its sizes are read from."""

# Buffers of the training code that some files carry along.
_IGNORED = {"lvl_1L", "attn_bias_for_masking", "Infinity_visible_kvlen", "Infinity_invisible_qlen"}
_CHUNKED = re.compile(r"block_chunks\.(\d+)\.module\.(\d+)\.(.+)")


def published_transformer_names(transformer: VARTransformer, chunks: int = CHUNKS) -> dict[str, str]:
    """Map the transformer's state-dict names to those of a published file.

    Parameters
    ----------
    transformer
        The model; on the meta device is enough.
    chunks
        Number of chunks that the blocks are stored in; it divides the depth.

    Returns
    -------
    dict
        ``{"blocks.5.sa.q_bias": "block_chunks.1.module.1.sa.q_bias", "head.weight": "head.weight", ...}``.
    """
    size, rest = divmod(transformer.config.depth, chunks)
    if rest:
        raise ValueError(f"{transformer.config.depth} blocks cannot be stored in {chunks} equal chunks")
    names = {}
    for name in transformer.state_dict():
        head, _, tail = name.partition(".")
        if head == "blocks":
            layer, _, leaf = tail.partition(".")
            chunk, j = divmod(int(layer), size)
            names[name] = f"block_chunks.{chunk}.module.{j}.{leaf}"
        else:
            names[name] = name
    return names


def chunk_count(keys: Iterable[str]) -> int:
    """Count the chunks that published names speak of."""
    return 1 + max((int(m[1]) for m in map(_CHUNKED.fullmatch, keys) if m), default=-1)


def flat_names(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename published tensors to the transformer's names, bringing the temperature to one shape."""
    size = 1 + max((int(m[2]) for m in map(_CHUNKED.fullmatch, tensors) if m), default=0)
    flat = {}
    for key, tensor in tensors.items():
        match = _CHUNKED.fullmatch(key)
        name = f"blocks.{int(match[1]) * size + int(match[2])}.{match[3]}" if match else key
        if name.endswith("sa.scale_mul_1H11"):
            # Written [1, 1, H, 1] by models trained with fused attention, [1, H, 1, 1] otherwise.
            tensor = tensor.reshape(1, -1, 1, 1)
        if name not in _IGNORED:
            flat[name] = tensor
    return flat


def read_transformer_config(tensors: Mapping[str, Tensor]) -> VARConfig:
    """Read a transformer's sizes from its (flat-named) weights.

    Raises
    ------
    CheckpointError
        If the tensors that carry the sizes are missing.
    """
    if absent := [key for key in SIZE_KEYS if key not in tensors]:
        raise CheckpointError("not an Infinity transformer: " + name_keys(absent))
    width = tensors["pos_start"].shape[-1]
    layers = {int(key.split(".")[1]) for key in tensors if key.startswith("blocks.")}
    return VARConfig(
        depth=1 + max(layers),
        width=width,
        heads=tensors["blocks.0.sa.scale_mul_1H11"].numel(),
        d=tensors["word_embed.weight"].shape[1],
        text_dim=tensors["cfg_uncond"].shape[1],
        pool_heads=tensors["text_proj_for_sos.ca.mat_q"].shape[1],
        null_tokens=tensors["cfg_uncond"].shape[0],
        levels=tensors["lvl_embed.weight"].shape[0],
        mlp_ratio=tensors["blocks.0.ffn.fc1.weight"].shape[0] // width,
    )


def meta_transformer(config: VARConfig) -> VARTransformer:
    """Build a transformer without memory: names and shapes only."""
    with shapes_only():
        return VARTransformer(config, [(1, 1)])


def load_transformer(
    tensors: Mapping[str, Tensor], dtype: torch.dtype = torch.float32, model: str = "auto"
) -> VARTransformer:
    """Build the transformer from a published state dict.

    With a half-precision ``dtype`` the linear maps of blocks and text are stored in it; norms, gates,
    embeddings, modulation and output head stay float32, as the published code computes them.

    Parameters
    ----------
    tensors
        Names and weights, chunked or flat.
    dtype
        Type of the large matrices.
    model
        ``"2b"`` or ``"8b"`` insists on that model's sizes; ``"auto"`` takes those of the file.

    Returns
    -------
    VARTransformer
        On the CPU, frozen, with the placeholder schedule ``[(1, 1)]``.

    Raises
    ------
    CheckpointError
        If weights are missing, have another shape, or belong to another model; the message names them.
    """
    flat = flat_names(tensors)
    config = read_transformer_config(flat)
    if model != "auto":
        config = _expected(model, config)
    transformer = meta_transformer(config)
    names = published_transformer_names(transformer, chunk_count(tensors) or 1)
    state = _matched(transformer, flat, names, "transformer")
    for name in state:
        narrow = name.startswith(("blocks.", "text_proj_for_")) and _is_linear(transformer, name)
        state[name] = state[name].detach().to(dtype if narrow else torch.float32)
    transformer.load_state_dict(state, assign=True)
    transformer.set_schedule([(1, 1)])
    return transformer.requires_grad_(False).eval()


def _is_linear(module: nn.Module, name: str) -> bool:
    # The biases of attention are parameters of their own, used in the same matrix product as the weight.
    path, _, leaf = name.rpartition(".")
    return isinstance(module.get_submodule(path), nn.Linear) or leaf in {"q_bias", "zero_k_bias", "v_bias"}


def _expected(model: str, found: VARConfig) -> VARConfig:
    if model not in MODELS:
        raise CheckpointError(f"model {model!r} is unknown", f"use one of {', '.join(MODELS)} or auto")
    want = MODELS[model]
    checks = (
        ("block_chunks.*", "blocks", want.depth, found.depth),
        ("pos_start", "width", want.width, found.width),
        ("word_embed.weight", "bits of a token", want.d, found.d),
        ("cfg_uncond", "text channels", want.text_dim, found.text_dim),
    )
    wrong = [f"{key}: {have} {what}, expected {need}" for key, what, need, have in checks if need != have]
    if wrong:
        raise CheckpointError(
            f"the transformer checkpoint is not Infinity-{model}: {'; '.join(wrong)}",
            'model="auto" takes the sizes of the file',
        )
    return want


def read_vae_config(tensors: Mapping[str, Tensor]) -> VAEConfig:
    """Read the autoencoder's sizes from its weights, in either way of naming.

    Raises
    ------
    CheckpointError
        If the tensors that carry the sizes are missing.
    """
    if absent := absent_vae_sizes(tensors):
        raise CheckpointError(f"not an Infinity VAE: {name_keys(absent)}")

    def weight(path: str) -> Tensor:
        return tensors[f"{path}.conv.weight" if f"{path}.conv.weight" in tensors else f"{path}.weight"]

    channels = weight("encoder.conv_in").shape[0]
    levels = {int(key.split(".")[2]) for key in tensors if key.startswith("encoder.down.")}
    first = {int(key.split(".")[4]) for key in tensors if key.startswith("encoder.down.0.block.")}
    widths = [weight(f"encoder.down.{i}.block.0.conv2").shape[0] for i in range(1 + max(levels))]
    return VAEConfig(
        d=weight("decoder.conv_in").shape[1],
        channels=channels,
        multipliers=tuple(width // channels for width in widths),
        blocks=1 + max(first),
    )


def absent_vae_sizes(tensors: Mapping[str, Tensor]) -> list[str]:
    """Name the tensors a VAE's sizes are read from that are not there, as published files name them."""
    levels = {int(key.split(".")[2]) for key in tensors if key.startswith("encoder.down.")}
    widths = [f"encoder.down.{i}.block.0.conv2" for i in range(1 + max(levels, default=0))]
    stored = {f"{path}.conv.weight": f"{path}.weight" for path in ("encoder.conv_in", *widths, "decoder.conv_in")}
    return [long for long, short in stored.items() if long not in tensors and short not in tensors]


def load_vae(tensors: Mapping[str, Tensor], dtype: torch.dtype = torch.float32) -> InfinityVAE:
    """Build the autoencoder from a published state dict.

    Parameters
    ----------
    tensors
        Names and weights; convolutions and normalisations may carry their inner ``.conv`` / ``.norm``
        segment or lack it. Names of training-only parts (quantiser buffers, discriminators) are ignored.
    dtype
        Parameter type of the result.

    Raises
    ------
    CheckpointError
        If weights are missing or have another shape; the message names them.
    """
    vae = meta_vae(read_vae_config(tensors))
    names = published_names(vae)
    state = _matched(vae, _vae_tensors(tensors, names), names, "VAE")
    vae.load_state_dict({name: tensor.detach().to(dtype) for name, tensor in state.items()}, assign=True)
    return vae.requires_grad_(False).eval()


def meta_vae(config: VAEConfig) -> InfinityVAE:
    """Build an autoencoder without memory: names and shapes only."""
    with shapes_only():
        return InfinityVAE(config)


def compare(module: nn.Module, tensors: Mapping[str, Tensor], names: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """List what ``tensors`` lacks of ``module``'s weights, and what has another shape, by published name."""
    missing, misshapen = [], []
    for name, want in module.state_dict().items():
        if name not in tensors:
            missing.append(names[name])
        elif tensors[name].shape != want.shape:
            misshapen.append(f"{names[name]} is {list(tensors[name].shape)}, expected {list(want.shape)}")
    return missing, misshapen


def describe_transformer(tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Give a transformer's sizes, and its ``missing``, ``misshapen`` and ``unexpected`` keys."""
    flat = flat_names(tensors)
    if absent := [key for key in SIZE_KEYS if key not in flat]:
        return {"missing": absent}
    config = read_transformer_config(flat)
    chunks = chunk_count(tensors)
    module = meta_transformer(config)
    names = published_transformer_names(module, chunks if chunks and config.depth % chunks == 0 else 1)
    missing, misshapen = compare(module, flat, names)
    return {
        "model": next((name for name, known in MODELS.items() if known == config), "custom"),
        "depth": config.depth,
        "chunks": chunks,
        "width": config.width,
        "heads": config.heads,
        "d": config.d,
        "text_dim": config.text_dim,
        "levels": config.levels,
        "missing": missing,
        "misshapen": misshapen,
        "unexpected": [name for name in flat if name not in names],
    }


def describe_vae(tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Give an autoencoder's sizes, and its ``missing``, ``misshapen`` and ``unexpected`` keys."""
    if absent := absent_vae_sizes(tensors):
        return {"missing": absent}
    config = read_vae_config(tensors)
    module = meta_vae(config)
    names = published_names(module)
    missing, misshapen = compare(module, _vae_tensors(tensors, names), names)
    known = {*names, *names.values()}
    return {
        "d": config.d,
        "width": config.channels,
        "multipliers": list(config.multipliers),
        "stride": config.stride,
        "missing": missing,
        "misshapen": misshapen,
        "unexpected": [key for key in tensors if key not in known],
    }


def _vae_tensors(tensors: Mapping[str, Tensor], names: Mapping[str, str]) -> dict[str, Tensor]:
    return {name: tensors[key] for name in names for key in (name, names[name]) if key in tensors}


def _matched(
    module: nn.Module, tensors: Mapping[str, Tensor], names: Mapping[str, str], what: str
) -> dict[str, Tensor]:
    missing, misshapen = compare(module, tensors, names)
    if missing or misshapen:
        raise CheckpointError(f"the {what} checkpoint does not fit: {name_keys(missing, misshapen)}")
    return {name: tensors[name] for name in module.state_dict()}


def name_keys(missing: list[str], misshapen: list[str] | None = None, limit: int = 6) -> str:
    """Put missing keys and wrong shapes into one line, the first few of each by name."""
    parts = []
    for what, keys in (("missing", missing), ("wrong shape:", misshapen or [])):
        if keys:
            more = f" and {len(keys) - limit} more" if len(keys) > limit else ""
            parts.append(f"{what} {', '.join(keys[:limit])}{more}")
    return "; ".join(parts)
