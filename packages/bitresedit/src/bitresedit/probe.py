"""A small network that reads a picture's factors: the offline stand-in for CLIP on rendered scenes.

It says how likely each colour, material, shape, ... is, so an edit can be scored by "does the picture now show what the
target caption asks for". It is trained on renders of its own, never on a generator's output, and with blur, noise and
grey surroundings, so that a tokenizer's softness or a masked crop does not mislead it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import resources
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from safetensors.torch import load_file
from torch import Tensor, nn

from .errors import CheckpointError
from .scenes import FACTORS, Factors, Scene, render, sample_scene, silhouettes
from .scenes.scene import SECOND_FACTORS
from .shapes_only import shapes_only

IMAGE_SIZE = 96

#: What the probe reads, with its possible answers; "none" stands for an absent second object.
CLASSES: dict[str, tuple[str, ...]] = {
    name: (*values, "none") if name in SECOND_FACTORS else values for name, values in FACTORS.items()
}

#: The factors that a picture of the main object alone still tells.
MAIN_FACTORS = ("size", "colour", "material", "shape")

_SIDE = list(CLASSES).index("side")
_LEFT, _RIGHT = CLASSES["side"].index("left"), CLASSES["side"].index("right")
_WEIGHTS = "probe.safetensors"

#: Sets the probe's scenes apart from those that the generator trains on or is tested with.
_STREAM = 96


class Probe(nn.Module):
    """Four strided convolutions and one linear read-out per factor; 0.15 M weights, under 0.3 MB in half precision."""

    def __init__(self) -> None:
        super().__init__()
        widths = (3, 24, 40, 72, 80)
        self.convolutions = nn.ModuleList(nn.Conv2d(a, b, 3, stride=2, padding=1) for a, b in pairwise(widths))
        self.norms = nn.ModuleList(nn.GroupNorm(8, width) for width in widths[1:])
        self.squeeze = nn.Conv2d(widths[-1], 24, 1)
        self.heads = nn.Linear(24 * (IMAGE_SIZE // 16) ** 2, sum(map(len, CLASSES.values())))

    def forward(self, images: Float[Tensor, "b 3 h w"]) -> dict[str, Float[Tensor, "b _"]]:
        """Log-odds of every answer, by factor; images in [-1, 1], resized to 96 x 96 if they are not."""
        x = images
        if x.shape[-2:] != (IMAGE_SIZE, IMAGE_SIZE):
            x = F.interpolate(x, (IMAGE_SIZE, IMAGE_SIZE), mode="bilinear", antialias=True)
        for convolution, norm in zip(self.convolutions, self.norms, strict=True):
            x = F.silu(norm(convolution(x)))
        logits = self.heads(self.squeeze(x).flatten(1))
        return dict(zip(CLASSES, logits.split([len(c) for c in CLASSES.values()], dim=1), strict=True))

    @torch.inference_mode()
    def factors(
        self, images: Float[Tensor, "b 3 h w"], mask: Bool[Tensor, "*b h w"] | None = None
    ) -> dict[str, Float[Tensor, "b _"]]:
        """Probability of every answer, by factor.

        Parameters
        ----------
        images
            Pictures in [-1, 1].
        mask
            Where to look: everything else is painted grey. Only `MAIN_FACTORS` can be trusted then.

        Returns
        -------
        dict of tensors
            ``result["colour"][i, j]`` is the probability that picture i's main object has ``CLASSES["colour"][j]``.
        """
        if mask is not None:
            images = images * mask.view(-1, 1, *mask.shape[-2:])
        return {name: logits.float().softmax(1) for name, logits in self(images).items()}

    def probability(
        self,
        images: Float[Tensor, "b 3 h w"],
        targets: Sequence[dict[str, str | None]],
        mask: Bool[Tensor, "*b h w"] | None = None,
    ) -> Float[Tensor, " b"]:
        """Mean probability of the asked answers, one number per picture.

        Parameters
        ----------
        images
            Pictures in [-1, 1].
        targets
            Per picture: factor name -> asked answer (None for an absent second object), as `EditPair.changed` gives.
        mask
            As in `factors`.
        """
        probabilities = self.factors(images, mask)
        rows = []
        for index, target in enumerate(targets):
            asked = [probabilities[name][index, _class(name, value)] for name, value in target.items()]
            rows.append(torch.stack(asked).mean())
        return torch.stack(rows)

    def accuracy(
        self,
        images: Float[Tensor, "b 3 h w"],
        scenes: Sequence[Scene | Factors],
        mask: Bool[Tensor, "*b h w"] | None = None,
    ) -> dict[str, float]:
        """Share of pictures whose most likely answer is the true one, by factor, and their mean as ``"mean"``."""
        truth = labels(scenes)
        guesses = torch.stack([p.argmax(1) for p in self.factors(images, mask).values()], dim=1).cpu()
        right = (guesses == truth).float().mean(0)
        result = {name: float(value) for name, value in zip(CLASSES, right, strict=True)}
        return {**result, "mean": float(right.mean())}

    @classmethod
    def load_default(cls) -> Probe:
        """Load the bundled weights, ready to use on the CPU.

        Raises
        ------
        CheckpointError
            If the bundled file is missing or does not fit.
        """
        with resources.as_file(resources.files("bitresedit") / "assets" / _WEIGHTS) as path:
            return cls.load(path)

    @classmethod
    def load(cls, path: str | Path) -> Probe:
        """Load weights from a safetensors file.

        Raises
        ------
        CheckpointError
            If the file is missing, damaged, or made for another network.
        """
        with shapes_only():
            probe = cls()
        try:
            state = load_file(path)
            probe.load_state_dict({name: value.float() for name, value in state.items()}, assign=True)
        except Exception as error:
            reason = " ".join(str(error).split())
            raise CheckpointError(
                f"cannot load the probe from {path}: {reason}", "the bundled one is made by: bitresedit train"
            ) from error
        return probe.eval()

    def half_state(self) -> dict[str, Tensor]:
        """Weights in half precision, as they are stored."""
        return {name: value.detach().half().contiguous() for name, value in self.state_dict().items()}


def _class(name: str, value: str | None) -> int:
    return CLASSES[name].index("none" if value is None else value)


def labels(scenes: Sequence[Scene | Factors]) -> Tensor:
    """Number the true answers: int64 [n, factors], in the order of `CLASSES`; for a scene, as its picture shows."""
    shown = [scene.shown if isinstance(scene, Scene) else scene for scene in scenes]
    return torch.tensor([[_class(name, getattr(f, name)) for name in CLASSES] for f in shown]).reshape(-1, len(CLASSES))


def to_tensor(pictures: np.ndarray) -> Float[Tensor, "b 3 h w"]:
    """Turn uint8 pictures [b, h, w, 3] into float images [b, 3, h, w] in [-1, 1]."""
    return torch.from_numpy(np.ascontiguousarray(pictures)).permute(0, 3, 1, 2).float() / 127.5 - 1


def _blur(images: Tensor, sigma: float) -> Tensor:
    taps = torch.arange(-2.0, 3.0)
    kernel = torch.exp(-(taps**2) / (2 * sigma**2))
    kernel = (kernel / kernel.sum()).repeat(3, 1)
    padded = F.pad(images, (2, 2, 2, 2), mode="replicate")
    rows = F.conv2d(padded, kernel.view(3, 1, 5, 1), groups=3)
    return F.conv2d(rows, kernel.view(3, 1, 1, 5), groups=3)


def _augmented(
    images: Tensor, truth: Tensor, outlines: Tensor, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """Flip, soften, speckle, tint and shift a batch; grey out some pictures outside the main object.

    Returns the images, their true answers, and which pictures still show their surroundings.
    """
    n = len(images)

    def chance(p: float) -> Tensor:
        return torch.rand(n, generator=generator) < p

    def uniform(low: float, high: float) -> float:
        return low + (high - low) * float(torch.rand((), generator=generator))

    flip = chance(0.5)
    images = torch.where(flip.view(-1, 1, 1, 1), images.flip(-1), images)
    outlines = torch.where(flip.view(-1, 1, 1), outlines.flip(-1), outlines)
    side = truth[:, _SIDE]
    swapped = torch.where(side == _LEFT, _RIGHT, torch.where(side == _RIGHT, _LEFT, side))
    truth = truth.clone()
    truth[:, _SIDE] = torch.where(flip, swapped, side)

    soft = chance(0.5).view(-1, 1, 1, 1)
    images = torch.where(soft, _blur(images, uniform(0.4, 1.1)), images)
    gain = 1 + 0.06 * (2 * torch.rand(n, 1, 1, 1, generator=generator) - 1)
    tint = 0.05 * (2 * torch.rand(n, 3, 1, 1, generator=generator) - 1)
    noise = torch.randn(images.shape, generator=generator) * uniform(0.0, 0.06)
    images = (images * gain + tint + noise).clamp(-1, 1)

    grey = chance(0.3)
    window = _window(outlines, generator)
    images = torch.where(grey.view(-1, 1, 1, 1), images * window, images)
    shift = [int(v) for v in torch.randint(-2, 3, (2,), generator=generator)]
    return images.roll(shift, (-2, -1)), truth, ~grey


def _window(outlines: Tensor, generator: torch.Generator) -> Tensor:
    """Masks [b, 1, 2 h, 2 w] as loose as those of edits: half follow the outline, half are boxes with random room."""
    n, height, width = outlines.shape
    reach = 2 * int(torch.randint(1, 4, (), generator=generator)) + 1
    loose = F.max_pool2d(outlines[:, None].float(), reach, stride=1, padding=reach // 2)
    room = torch.randint(1, 9, (n, 4, 1), generator=generator)
    sides = []
    for axis, length in ((2, height), (1, width)):
        filled = outlines.any(axis)
        first = filled.int().argmax(1, keepdim=True)
        last = length - 1 - filled.flip(1).int().argmax(1, keepdim=True)
        place = torch.arange(length)
        sides.append((place >= first - room[:, 2 * axis - 2]) & (place <= last + room[:, 2 * axis - 1]))
    box = (sides[0][:, :, None] & sides[1][:, None, :])[:, None].float()
    follows = torch.rand(n, 1, 1, 1, generator=generator) < 0.5
    return torch.where(follows, loose, box).repeat_interleave(2, 2).repeat_interleave(2, 3)


def train_probe(
    seed: int = 0,
    steps: int = 1500,
    progress: Callable[[int, float], None] | None = None,
    data: tuple[Sequence[Scene], np.ndarray] | None = None,
    count: int = 5000,
) -> tuple[Probe, dict[str, float]]:
    """Train the probe on rendered scenes and measure it on 500 it has not seen.

    Parameters
    ----------
    seed
        Seed of scenes, weights and batches.
    steps
        Steps of AdamW on batches of 32, one-cycle learning rate.
    progress
        Called after each step with the step's number and loss.
    data
        Scenes and their renders (uint8 [n, 96, 96, 3]) to train on; by default `count` scenes are rendered.
    count
        How many scenes to render if none are given.

    Returns
    -------
    tuple
        The probe, rounded to half precision, and its held-out accuracy by factor with their ``"mean"``.
    """
    if data is None:
        rng = np.random.default_rng((_STREAM, seed, 0))
        scenes: Sequence[Scene] = [sample_scene(rng) for _ in range(count)]
        pictures = render(scenes, IMAGE_SIZE)
    else:
        scenes, pictures = data
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        probe = Probe()
    probe.train()
    truth = labels(scenes)
    outlines = _outlines(scenes)
    optimizer = torch.optim.AdamW(probe.parameters(), lr=3e-3, weight_decay=0.02)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, total_steps=steps, pct_start=0.15)
    for step in range(steps):
        batch = torch.randint(len(scenes), (32,), generator=generator)
        images = to_tensor(pictures[batch.numpy()])
        images, answers, whole = _augmented(images, truth[batch], outlines[batch], generator)
        loss = _loss(probe(images), answers, whole)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        schedule.step()
        if progress is not None:
            progress(step + 1, float(loss.detach()))
    probe.eval()
    probe.load_state_dict({name: value.float() for name, value in probe.half_state().items()})
    return probe, held_out_accuracy(probe, seed)


def _outlines(scenes: Sequence[Scene]) -> Tensor:
    """Main objects' silhouettes [n, h / 2, w / 2]: half the resolution, for the masks made from them are loose."""
    return torch.from_numpy(np.stack([silhouettes(scene, IMAGE_SIZE // 2)[0] for scene in scenes]))


def _loss(logits: dict[str, Tensor], answers: Tensor, whole: Tensor) -> Tensor:
    """Sum of cross-entropies; the surroundings count only where they can be seen."""
    losses = []
    for index, (name, values) in enumerate(logits.items()):
        each = F.cross_entropy(values, answers[:, index], reduction="none")
        losses.append(each.mean() if name in MAIN_FACTORS else (each * whole).sum() / whole.sum().clamp(min=1))
    return torch.stack(losses).sum()


def held_out_accuracy(probe: Probe, seed: int = 0, count: int = 500) -> dict[str, float]:
    """Accuracy by factor on scenes from a stream that training never draws from."""
    rng = np.random.default_rng((_STREAM, seed, 1))
    scenes = [sample_scene(rng) for _ in range(count)]
    return probe.accuracy(to_tensor(render(scenes, IMAGE_SIZE)), scenes)
