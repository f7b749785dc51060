"""The published Infinity models as a backbone: text encoder, transformer, autoencoder behind one interface.

Attention is PyTorch's own, so no extra kernels are needed and everything runs on a CPU too. Infinity-2B
predicts one 32-bit code a token; Infinity-8B predicts a 2 x 2 patch of 14-bit codes a token, and this
adapter presents it as one token a code, so that an editor sees the same interface for both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import pixel_unshuffle

from bitresedit.backbones.infinity_schedule import InfinitySchedule
from bitresedit.backbones.infinity_vae import InfinityVAE
from bitresedit.backbones.infinity_weights import load_transformer, load_vae
from bitresedit.bsq import MultiScaleBSQ, upsample
from bitresedit.checkpoint import read
from bitresedit.errors import BitResEditError, CheckpointError
from bitresedit.pretrained import whole_model
from bitresedit.var_transformer import Cond, KVCache, VARTransformer

_DTYPES = (torch.float32, torch.bfloat16)


class T5Text:
    """A T5 encoder read through transformers.

    Parameters
    ----------
    name
        Local folder with the tokenizer and weights (Flan-T5-XL for the published models), or a hub name.
    device, dtype
        Where the encoder runs, and in which precision.
    max_tokens
        Longer prompts are cut.

    Raises
    ------
    BitResEditError
        If transformers is not installed.
    CheckpointError
        If the folder holds no T5 encoder.
    """

    def __init__(
        self,
        name: str | Path,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        max_tokens: int = 512,
    ) -> None:
        try:
            from transformers import AutoTokenizer, T5EncoderModel
        except ImportError as error:
            raise BitResEditError(
                "Infinity reads prompts with transformers, which is not installed",
                'install the extra: pip install "bitresedit[infinity]"',
            ) from error
        local = Path(name).exists()
        try:
            self.tokenizer: Any = AutoTokenizer.from_pretrained(str(name), local_files_only=local)
        except (OSError, ValueError) as error:
            raise CheckpointError(f"no T5 tokenizer in {name}: {str(error).splitlines()[0]}") from error
        self.encoder = whole_model(T5EncoderModel, name, "T5 encoder", local_files_only=local, dtype=dtype)
        self.encoder.to(device).requires_grad_(False).eval()
        self.max_tokens = max_tokens

    @torch.no_grad()
    def __call__(
        self, prompts: Sequence[str]
    ) -> tuple[Float[Tensor, "b t c"], Bool[Tensor, "b t"], tuple[tuple[str, ...], ...]]:
        """Encode prompts.

        Returns
        -------
        tuple
            Float32 features ``[B, T, C]``, bool mask ``[B, T]`` (True for real pieces), and the text pieces.
        """
        batch = self.tokenizer(
            list(prompts), padding=True, truncation=True, max_length=self.max_tokens, return_tensors="pt"
        ).to(self.encoder.device)
        features = self.encoder(input_ids=batch.input_ids, attention_mask=batch.attention_mask).last_hidden_state
        mask = batch.attention_mask.bool()
        words = tuple(
            tuple(
                piece if real else ""
                for piece, real in zip(self.tokenizer.convert_ids_to_tokens(ids), row, strict=True)
            )
            for ids, row in zip(batch.input_ids.tolist(), mask.tolist(), strict=True)
        )
        return features.float(), mask, words


class Infinity:
    """Infinity as a backbone for editing.

    Parameters
    ----------
    transformer, vae
        The models, on one device (or the transformer spread over several, see :meth:`from_checkpoints`).
    text_encoder
        Called with prompts; gives features, mask and text pieces as :class:`T5Text` does.
    schedule
        Image shape and pixel budget.
    dtype
        float32, or bfloat16 for the large matrices (norms, modulation, logits and the autoencoder stay
        float32).

    Attributes
    ----------
    schedule
        Latent grids ``(rows, columns)``, coarse to fine.
    d
        Bits of one code.
    bsq
        The residual quantiser over ``schedule``.

    References
    ----------
    Han et al., "Infinity: Scaling Bitwise AutoRegressive Modeling for High-Resolution Image Synthesis",
    arXiv 2412.04431.
    """

    default_config: Mapping[str, Any] = MappingProxyType({})
    """The paper's editing settings were chosen on this model: nothing differs."""

    def __init__(
        self,
        transformer: VARTransformer,
        vae: InfinityVAE,
        text_encoder: T5Text,
        schedule: InfinitySchedule | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        if dtype not in _DTYPES:
            raise BitResEditError(f"Infinity runs in float32 or bfloat16, not {dtype}")
        per_token, d = transformer.config.d, vae.config.d
        if per_token not in (d, 4 * d):
            raise CheckpointError(
                f"transformer and VAE do not belong together: word_embed.weight takes {per_token} bits "
                f"a token, decoder.conv_in.conv.weight takes {d}",
                "the 2B model goes with the d=32 VAE, the 8B model with the d=14 (stride 8) VAE",
            )
        self.transformer, self.vae, self.text_encoder = transformer, vae, text_encoder
        self.d, self.dtype, self.patch = d, dtype, 1 if per_token == d else 2
        self.device = transformer.pos_start.device
        self.set_schedule(schedule or InfinitySchedule())

    @classmethod
    def from_checkpoints(
        cls,
        transformer: str | Path,
        vae: str | Path,
        t5: str | Path,
        pn: str = "0.25M",
        model: Literal["2b", "8b", "auto"] = "2b",
        device: str | torch.device = "cpu",
        dtype: torch.dtype = torch.float32,
        ratio: float = 1.0,
        device_map: Literal["auto"] | Mapping[str, int | str] | None = None,
        offload_folder: str | Path | None = None,
    ) -> Infinity:
        """Load the published files.

        Parameters
        ----------
        transformer
            ``infinity_2b_reg.pth``, the 8B folder of shards, a training checkpoint, or ``.safetensors``.
        vae
            ``infinity_vae_d32reg.pth`` (2B) or ``infinity_vae_d56_f8_14_patchify.pth`` (8B).
        t5
            Folder of ``google/flan-t5-xl``.
        pn
            Pixel budget: ``"0.06M"``, ``"0.25M"`` (512 x 512), ``"0.60M"`` or ``"1M"`` (1024 x 1024).
        model
            Sizes to insist on; ``"auto"`` takes them from the file.
        device, dtype
            Where and in which precision to run.
        ratio
            Height / width of the images; :meth:`fit` chooses it for an image.
        device_map
            Spread the transformer's blocks over several devices with accelerate: ``"auto"``, or device by
            index of the block, ``{"0": 0, "1": 0, "2": 1, ...}``. Everything else lies on ``device``.
            Blocks mapped to ``"cpu"`` or ``"disk"`` are brought to ``device`` each time they run.
        offload_folder
            Where blocks mapped to ``"disk"`` are kept.

        Raises
        ------
        CheckpointError
            If a file is missing, damaged, holds code, or does not fit; the message names the keys.
        BitResEditError
            If an extra is not installed.
        """
        schedule = InfinitySchedule(ratio, pn)
        if dtype not in _DTYPES:
            raise BitResEditError(f"Infinity runs in float32 or bfloat16, not {dtype}")
        # The largest file last: a wrong name is told before minutes of reading, and what is left of the device's
        # memory is known when the blocks are spread.
        autoencoder = load_vae(read(vae).tensors).to(device)
        text_encoder = T5Text(t5, device, dtype)
        blocks = load_transformer(read(transformer).tensors, dtype, model)
        blocks = blocks.to(device) if device_map is None else spread(blocks, device, device_map, offload_folder)
        return cls(blocks, autoencoder, text_encoder, schedule, dtype)

    @classmethod
    def from_folder(
        cls,
        folder: str | Path,
        pn: str = "0.25M",
        device: str | torch.device = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> Infinity:
        """Load the model whose three parts lie in one folder, found by their published names.

        The VAE's name contains ``vae``, the text encoder's ``t5``, the transformer's starts with
        ``infinity``.
        """
        transformer, vae, t5 = find_parts(folder)
        return cls.from_checkpoints(transformer, vae, t5, pn, "auto", device, dtype)

    def set_schedule(self, schedule: InfinitySchedule) -> None:
        """Draw images of another shape or budget with the same weights."""
        self.shape = schedule
        self.transformer.set_schedule(schedule.grids, reference=schedule.reference)
        self.schedule = [(self.patch * h, self.patch * w) for h, w in schedule.grids]
        self.bsq = MultiScaleBSQ(self.schedule, self.d).to(self.device)

    def fit(self, height: int, width: int) -> Infinity:
        """Choose the schedule nearest to an image's shape, keeping the budget; gives the model itself."""
        self.set_schedule(InfinitySchedule.for_image(height, width, self.shape.budget))
        return self

    @property
    def image_size(self) -> tuple[int, int]:
        """Pixels ``(height, width)``."""
        rows, columns = self.schedule[-1]
        return rows * self.vae.config.stride, columns * self.vae.config.stride

    @torch.no_grad()
    def encode_image(self, image: Float[Tensor, "1 3 h w"]) -> list[Tensor]:
        """Quantise an image of :attr:`image_size`, RGB in [-1, 1], into bits ``[1, h_k, w_k, d]`` a scale."""
        if tuple(image.shape[-2:]) != self.image_size:
            got, want = image.shape[-2:], self.image_size
            raise BitResEditError(
                f"expected an image of {want[1]} x {want[0]} pixels, got {got[1]} x {got[0]}",
                "crop and resize it first",
            )
        return self.bsq.encode(self.vae.encode(image.to(self.device, torch.float32)))

    @torch.no_grad()
    def decode(self, latent: Float[Tensor, "b d rows columns"]) -> Float[Tensor, "b 3 h w"]:
        """Decode sums of codes into RGB images in [-1, 1]."""
        return self.vae.decode(latent.to(self.device, torch.float32))

    @torch.no_grad()
    def text(self, prompts: Sequence[str]) -> Cond:
        """Encode prompts into a condition of as many rows."""
        features, mask, words = self.text_encoder(prompts)
        with self._precision():
            return self.transformer.condition(features.to(self.device), mask.to(self.device), words)

    @torch.no_grad()
    def null_text(self, batch: int, kind: Literal["empty", "cfg_uncond"] = "empty", tokens: int | None = None) -> Cond:
        """Give the condition of classifier-free guidance's null row.

        Parameters
        ----------
        batch
            Rows.
        kind
            ``"empty"`` encodes the empty prompt; ``"cfg_uncond"`` is the vector learned by dropping captions.
        tokens
            Rows of ``cfg_uncond`` to use. In training it replaces a caption token by token, so the published
            sampler uses as many as the prompt has; all by default.
        """
        if kind == "empty":
            return self.text([""] * batch)
        with self._precision():
            return self.transformer.null_condition(batch, tokens)

    def start(self, cond: Cond) -> Float[Tensor, "b 1 c"]:
        """Give the first scale's input: the pooled text plus a learned vector."""
        return self.transformer.start(cond)

    def cache(self) -> KVCache:
        """Give an empty key/value cache."""
        return KVCache()

    @torch.no_grad()
    def logits(
        self, x: Float[Tensor, "b tokens c"], cond: Cond, k: int, cache: KVCache
    ) -> Float[Tensor, "b cells d 2"]:
        """Predict scale ``k``'s bits on top of the cached scales.

        Parameters
        ----------
        x
            From :meth:`start` or :meth:`next_input`.
        cond
            Text condition of the same rows.
        k
            Scale.
        cache
            Keys and values of scales ``0 .. k-1``; receives this one's.

        Returns
        -------
        Tensor
            Float32 ``[B, h_k w_k, d, 2]``, row-major cells of ``schedule[k]``, last axis (bit 0, bit 1).
        """
        with self._precision():
            logits = self.transformer.logits(x, cond, k, cache).to(self.device)
        return logits if self.patch == 1 else self._unpatch(logits, k)

    @torch.no_grad()
    def next_input(self, latent: Float[Tensor, "b d rows columns"], k: int) -> Float[Tensor, "b tokens c"]:
        """Give scale ``k``'s input from the sum of codes before it."""
        grid = upsample(latent, self.schedule[k])
        return self.transformer.embed(grid if self.patch == 1 else pixel_unshuffle(grid, self.patch), k)

    def _unpatch(self, logits: Tensor, k: int) -> Tensor:
        # Channel 4 c + 2 i + j of a token is bit c of the cell at row i, column j of its 2 x 2 patch.
        h, w = self.transformer.schedule[k]
        cells = logits.unflatten(1, (h, w)).unflatten(3, (self.d, self.patch, self.patch))
        return cells.permute(0, 1, 4, 2, 5, 3, 6).flatten(1, 4)

    def _precision(self) -> AbstractContextManager[None]:
        return torch.autocast(self.device.type, dtype=self.dtype, enabled=self.dtype != torch.float32)


def find_parts(folder: str | Path) -> tuple[Path, Path, Path]:
    """Find transformer, VAE and T5 in a folder by their published names.

    Raises
    ------
    CheckpointError
        If one of them is not there, or if several could be it; the message names them.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise CheckpointError(f"no folder at {folder}")
    names = [path for path in sorted(folder.iterdir()) if not path.name.startswith(".")]
    found: dict[str, list[Path]] = {
        "transformer (infinity*)": [p for p in names if p.name.startswith("infinity") and "vae" not in p.name],
        "VAE (*vae*)": [p for p in names if "vae" in p.name],
        "text encoder (*t5*)": [p for p in names if "t5" in p.name and p.is_dir()],
    }
    for what, candidates in found.items():
        if not candidates:
            raise CheckpointError(f"{folder} has no {what}")
        if len(candidates) > 1:
            listed = ", ".join(p.name for p in candidates)
            raise CheckpointError(f"{folder} has more than one {what}: {listed}", "use Infinity.from_checkpoints")
    transformer, vae, t5 = (candidates[0] for candidates in found.values())
    return transformer, vae, t5


def spread(
    transformer: VARTransformer,
    device: str | torch.device,
    device_map: Literal["auto"] | Mapping[str, int | str],
    offload_folder: str | Path | None = None,
) -> VARTransformer:
    """Spread a transformer's blocks over devices, the rest on ``device``; see :meth:`Infinity.from_checkpoints`."""
    try:
        from accelerate import dispatch_model, infer_auto_device_map
    except ImportError as error:
        raise BitResEditError(
            "device_map needs accelerate, which is not installed",
            'install the extra: pip install "bitresedit[infinity]"',
        ) from error
    blocks = transformer.blocks
    # All but the blocks is small and used at every scale, so it stays together on the main device.
    transformer.blocks = torch.nn.ModuleList()
    transformer.to(device)
    if device_map == "auto":
        device_map = infer_auto_device_map(blocks, no_split_module_classes=["Block"])
    placement: dict[str, Any] = dict(device_map)
    # A block reads some of its parts' weights without calling them, so it is loaded as a whole.
    transformer.blocks = dispatch_model(
        blocks,
        device_map=placement,
        main_device=str(device),
        offload_dir=offload_folder,
        preload_module_classes=["Block"],
    )
    return transformer
