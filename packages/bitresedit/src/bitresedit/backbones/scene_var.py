"""The bundled backbone: small pictures of captioned scenes, weights inside the package."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from torch import Tensor

from bitresedit.errors import CheckpointError
from bitresedit.scene_model import SceneModel, caption_ids
from bitresedit.shapes_only import shapes_only
from bitresedit.tokenizer import SceneTokenizer, TokenizerConfig
from bitresedit.var_transformer import Cond, KVCache, VARConfig
from papers_shared.artifacts import write_safetensors

_DEFAULT = "scene96.safetensors"


class SceneVAR:
    """Bitwise visual autoregressive model of captioned scenes; implements :class:`~bitresedit.backbones.Backbone`.

    Parameters
    ----------
    tokenizer
        Pictures to bits and back.
    model
        Captions and bits to logits.
    device, dtype
        Where it runs, and in what precision.

    Examples
    --------
    >>> backbone = SceneVAR.load_default()
    >>> backbone.image_size
    (96, 96)
    """

    default_config: Mapping[str, Any] = {"cfg": 2.5, "tau": 0.5}

    def __init__(
        self,
        tokenizer: SceneTokenizer,
        model: SceneModel,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.device, self.dtype = torch.device(device), dtype
        self.tokenizer = tokenizer.to(self.device).eval().requires_grad_(False)
        self.model = model.to(self.device, dtype).eval().requires_grad_(False)
        self.bsq = tokenizer.bsq
        self.schedule = self.bsq.schedule
        self.d = self.bsq.d
        self.image_size = (tokenizer.config.image_size, tokenizer.config.image_size)

    @classmethod
    def load_default(cls, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32) -> SceneVAR:
        """Load the bundled weights.

        Raises
        ------
        CheckpointError
            If the bundled file is missing or damaged.
        """
        with resources.as_file(resources.files("bitresedit") / "assets" / _DEFAULT) as path:
            return cls.load(path, device, dtype)

    @classmethod
    def load(cls, path: str | Path, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32) -> SceneVAR:
        """Load weights that ``bitresedit train`` wrote.

        Parameters
        ----------
        path
            A safetensors file whose metadata hold the shapes.
        device, dtype
            Where it runs, and in what precision.

        Raises
        ------
        CheckpointError
            If the file is missing, damaged, or not of a scene model.
        """
        path = Path(path)
        if not path.is_file():
            raise CheckpointError(f"no file {path}", hint="`bitresedit train` makes one")
        try:
            with safe_open(path, framework="pt") as file:
                metadata = file.metadata() or {}
                tensors = {name: file.get_tensor(name).float() for name in file.keys()}  # noqa: SIM118
        except SafetensorError as error:
            raise CheckpointError(f"{path.name} is not a whole safetensors file: {error}") from error
        try:
            shapes = json.loads(metadata["shapes"])
            with shapes_only():
                tokenizer = SceneTokenizer(_tokenizer_config(shapes["tokenizer"]))
                model = SceneModel(VARConfig(**shapes["transformer"]), tokenizer.config.schedule, shapes["text_layers"])
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"{path.name} does not describe a scene model ({error})") from error
        for prefix, module in (("tokenizer.", tokenizer), ("model.", model)):
            part = {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}
            _load(module, part, path.name)
        return cls(tokenizer, model, device, dtype)

    def save(self, path: str | Path, text_layers: int, metadata: Mapping[str, str], force: bool = True) -> Path:
        """Write the weights in float16, with their shapes and ``metadata`` in the header."""
        shapes = {
            "tokenizer": vars(self.tokenizer.config),
            "transformer": vars(self.model.var.config),
            "text_layers": text_layers,
        }
        tensors = {
            f"{prefix}.{name}": value.detach().to("cpu", torch.float16).contiguous()
            for prefix, module in (("tokenizer", self.tokenizer), ("model", self.model))
            for name, value in module.state_dict().items()
        }
        return write_safetensors(path, tensors, {**metadata, "shapes": json.dumps(shapes)}, force=force)

    def encode_image(self, image: Float[Tensor, "b 3 height width"]) -> list[Tensor]:
        """Give a picture's bits, one bool tensor ``[B, h_k, w_k, d]`` a scale; RGB in [-1, 1]."""
        with torch.no_grad():
            return self.bsq.encode(self.tokenizer.encode(image.to(self.device, torch.float32)))

    def decode(self, latent: Float[Tensor, "b d h w"]) -> Float[Tensor, "b 3 height width"]:
        """Give the picture of a sum of codes, RGB in [-1, 1]."""
        with torch.no_grad():
            return self.tokenizer.decode(latent.to(self.device, torch.float32))

    def text(self, prompts: Sequence[str]) -> Cond:
        """Encode captions, one a row; an empty one is the unconditional text.

        Raises
        ------
        VocabularyError
            If a word is unknown or a caption too long.
        """
        with torch.no_grad():
            return self.model.condition(caption_ids(prompts).to(self.device))

    def null_text(self, batch: int, kind: Literal["empty", "cfg_uncond"] = "empty", tokens: int | None = None) -> Cond:
        """Give the learned unconditional text: for this model the empty caption, always all its vectors."""
        with torch.no_grad():
            return self.model.var.null_condition(batch)

    def start(self, cond: Cond) -> Float[Tensor, "b 1 c"]:
        """Give the first scale's input."""
        with torch.no_grad():
            return self.model.var.start(cond).to(self.dtype)

    def cache(self) -> KVCache:
        """Give an empty key/value cache."""
        return KVCache()

    def logits(
        self, x: Float[Tensor, "b tokens c"], cond: Cond, k: int, cache: KVCache
    ) -> Float[Tensor, "b tokens d 2"]:
        """Give float32 logits of every bit of scale ``k``; the cache holds the scales before and receives it."""
        with torch.no_grad():
            return self.model.var.logits(x, cond, k, cache)

    def next_input(self, latent: Float[Tensor, "b d h w"], k: int) -> Float[Tensor, "b tokens c"]:
        """Give the input of scale ``k`` from the sum of codes before it."""
        with torch.no_grad():
            return self.model.var.embed(latent.to(self.device), k)


def _tokenizer_config(values: dict[str, Any]) -> TokenizerConfig:
    values = dict(values)
    values["schedule"] = tuple((int(h), int(w)) for h, w in values["schedule"])
    values["widths"] = tuple(values["widths"])
    return TokenizerConfig(**values)


def _load(module: torch.nn.Module, tensors: dict[str, Tensor], name: str) -> None:
    wanted = module.state_dict()
    missing = sorted(wanted.keys() - tensors.keys())
    wrong = sorted(key for key in wanted.keys() & tensors.keys() if wanted[key].shape != tensors[key].shape)
    if missing or wrong:
        raise CheckpointError(
            f"{name} lacks {len(missing)} weights and has {len(wrong)} of another shape: "
            + ", ".join([*missing, *wrong][:4]),
            hint="it was made for another model",
        )
    module.load_state_dict({key: tensors[key] for key in wanted}, assign=True)
