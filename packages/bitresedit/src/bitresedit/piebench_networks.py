"""The three networks of PIE-Bench's metrics, each read from a local folder and never downloaded."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as nnf
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from bitresedit.checkpoint import read
from bitresedit.errors import BitResEditError, CheckpointError
from bitresedit.pretrained import whole_model

_IMAGENET_MEAN, _IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def _folder(path: str | Path, what: str) -> Path:
    path = Path(path)
    if not path.is_dir():
        raise BitResEditError(f"no folder at {path} to read {what} from")
    return path


def _transformers() -> Any:
    try:
        import transformers
    except ImportError as error:
        raise BitResEditError(
            "this metric reads its network with transformers, which is not installed",
            'install the extra: pip install "bitresedit[infinity]"',
        ) from error
    return transformers


def _torchmetrics() -> Path:
    # Found without importing it, which takes seconds.
    spec = find_spec("torchmetrics")
    return Path(str(spec and spec.origin)).parent


def _vector(values: tuple[float, ...], device: str | torch.device) -> Tensor:
    return torch.tensor(values, device=device).view(1, 3, 1, 1)


class StructureDistance:
    """Mean squared difference of two images' self-similarities in DINO's last keys.

    With ``k_t`` the key of token ``t`` (all heads side by side) in the last layer, layer 11 of ViT-B/8, and
    ``S_tu = cos(k_t, k_u)``, the distance is ``mean_tu (S_tu(I) - S_tu(I'))^2``.

    As in the benchmark's evaluator, pixels enter in 0..255 before the ImageNet normalisation; published
    figures were computed so, and a distance from pixels in 0..1 cannot be compared with them.

    Parameters
    ----------
    folder
        ``facebook/dino-vitb8`` in the transformers format.
    device
        Where the network runs.

    References
    ----------
    Tumanyan et al., "Splicing ViT Features for Semantic Appearance Transfer", arXiv 2201.00424, section 3.
    """

    def __init__(self, folder: str | Path, device: str | torch.device = "cpu") -> None:
        folder = _folder(folder, "DINO")
        kind = _transformers().ViTModel
        model = whole_model(kind, folder, "DINO vision transformer", add_pooling_layer=False, local_files_only=True)
        self.model = model.to(device).requires_grad_(False).eval()
        # The projection is called `key` or `k_proj`, by version of the library.
        projections = [module for name, module in self.model.named_modules() if name.endswith((".key", ".k_proj"))]
        projections[-1].register_forward_hook(self._keep)
        self._mean, self._std = _vector(_IMAGENET_MEAN, device), _vector(_IMAGENET_STD, device)

    def _keep(self, module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        self._keys = output

    @torch.no_grad()
    def self_similarity(self, image: UInt8[np.ndarray, "h w 3"]) -> Float[Tensor, "tokens tokens"]:
        """Give the cosines between the last layer's keys of all tokens, the class token first."""
        size = self.model.config.image_size
        pixels = torch.from_numpy(image.astype(np.float32)).permute(2, 0, 1)[None].to(self._mean.device)
        pixels = nnf.interpolate(pixels, size=(size, size), mode="bilinear", align_corners=False, antialias=True)
        self.model(pixel_values=(pixels - self._mean) / self._std)
        keys = nnf.normalize(self._keys[0], dim=-1)
        return keys @ keys.T

    def __call__(self, source: UInt8[np.ndarray, "h w 3"], edited: UInt8[np.ndarray, "h w 3"]) -> float:
        """Give the distance between two images."""
        return float((self.self_similarity(source) - self.self_similarity(edited)).square().mean())


class Lpips:
    """Learned perceptual distance on SqueezeNet 1.1 features.

    ``sum_l mean_xy sum_c w_lc (f_lc(I) / |f_l(I)| - f_lc(I') / |f_l(I')|)^2`` over seven layers. The
    learned weights ``w`` come with torchmetrics.

    Parameters
    ----------
    folder
        Holds torchvision's ``squeezenet1_1-*.pth`` (or ``.safetensors``).
    device
        Where the network runs.

    References
    ----------
    Zhang et al., "The Unreasonable Effectiveness of Deep Features as a Perceptual Metric", arXiv 1801.03924,
    equation 1.
    """

    _ENDS = (2, 5, 8, 10, 11, 12, 13)
    _SHIFT, _SCALE = (-0.030, -0.088, -0.188), (0.458, 0.448, 0.450)

    def __init__(self, folder: str | Path, device: str | torch.device = "cpu") -> None:
        try:
            from torchvision.models import squeezenet1_1
        except ImportError as error:
            raise BitResEditError(
                "LPIPS needs torchvision, which is not installed",
                'install the extra: pip install "bitresedit[clip]"',
            ) from error
        weights = sorted(_folder(folder, "SqueezeNet").glob("squeezenet1_1*"))
        if not weights:
            raise CheckpointError(f"{folder} has no squeezenet1_1-*.pth")
        features = squeezenet1_1(weights=None).features
        tensors = read(weights[0]).tensors
        names = [f"features.{key}" for key in features.state_dict()]
        if absent := [name for name in names if name not in tensors]:
            raise CheckpointError(f"{weights[0]} is not SqueezeNet 1.1: missing {', '.join(absent[:6])}")
        features.load_state_dict({name.removeprefix("features."): tensors[name] for name in names})
        self.features = features.to(device).requires_grad_(False).eval()
        heads = read(_torchmetrics() / "functional" / "image" / "lpips_models" / "squeeze.pth").tensors
        self.weights = [heads[f"lin{i}.model.1.weight"].to(device) for i in range(len(self._ENDS))]
        self._shift, self._scale = _vector(self._SHIFT, device), _vector(self._SCALE, device)

    def _layers(self, image: Tensor) -> list[Tensor]:
        x, layers = (image.to(self._shift.device) - self._shift) / self._scale, []
        for i, module in enumerate(self.features, start=1):
            x = module(x)
            if i in self._ENDS:
                layers.append(x / (x.square().sum(dim=1, keepdim=True) + 1e-8).sqrt())
        return layers

    @torch.no_grad()
    def __call__(self, source: Float[Tensor, "1 3 h w"], edited: Float[Tensor, "1 3 h w"]) -> float:
        """Give the distance between two RGB images in [-1, 1]."""
        pairs = zip(self._layers(source), self._layers(edited), self.weights, strict=True)
        return float(sum((weight * (a - b).square()).sum(dim=1).mean() for a, b, weight in pairs))


class Clip:
    """CLIP score: ``100 max(0, cos(image, text))``.

    Parameters
    ----------
    folder
        A model in the transformers format (``config.json``), or in open_clip's (``open_clip_config.json``).
    device
        Where the network runs.

    References
    ----------
    Hessel et al., "CLIPScore", arXiv 2104.08718, equation 1 (with weight 100).
    """

    def __init__(self, folder: str | Path, device: str | torch.device = "cpu") -> None:
        folder = _folder(folder, "CLIP")
        self.device = device
        self._embed = self._open_clip(folder) if (folder / "open_clip_config.json").is_file() else self._hf(folder)

    def _hf(self, folder: Path) -> Any:
        transformers = _transformers()
        model = whole_model(transformers.CLIPModel, folder, "CLIP model", local_files_only=True)
        try:
            processor = transformers.CLIPProcessor.from_pretrained(folder, local_files_only=True)
        except (OSError, ValueError) as error:
            raise CheckpointError(f"no CLIP processor in {folder}: {str(error).splitlines()[0]}") from error
        model.to(self.device).requires_grad_(False).eval()
        longest = model.config.text_config.max_position_embeddings

        def embed(image: np.ndarray, text: str) -> tuple[Any, Any]:
            # A view of a PIL image cannot be written to, which torch warns of.
            pixels = processor(images=[image.copy()], return_tensors="pt").to(self.device)
            words = processor(text=[text], return_tensors="pt", truncation=True, max_length=longest).to(self.device)
            return model.get_image_features(**pixels), model.get_text_features(**words)

        return embed

    def _open_clip(self, folder: Path) -> Any:
        try:
            import open_clip
        except ImportError as error:
            raise BitResEditError(
                "this CLIP folder needs open_clip, which is not installed",
                'install the extra: pip install "bitresedit[clip]"',
            ) from error
        from PIL import Image

        name = f"local-dir:{folder}"
        model, transform = open_clip.create_model_from_pretrained(name, device=self.device)
        tokenizer = open_clip.get_tokenizer(name)
        model.requires_grad_(False).eval()

        def embed(image: np.ndarray, text: str) -> tuple[Any, Any]:
            pixels = transform(Image.fromarray(image))[None].to(self.device)
            return model.encode_image(pixels), model.encode_text(tokenizer([text]).to(self.device))

        return embed

    @torch.no_grad()
    def __call__(self, image: UInt8[np.ndarray, "h w 3"], text: str) -> float:
        """Score an image against a text, 0 to 100."""
        # Newer transformers wrap the projected features in an output object.
        vectors = [v if isinstance(v, Tensor) else v.pooler_output for v in self._embed(image, text)]
        cosine = nnf.cosine_similarity(*vectors).item()
        return 100 * max(0.0, cosine)
