from __future__ import annotations

import sys
import warnings
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as nnf
from PIL import Image

from bitresedit.backbones.scene_var import SceneVAR
from bitresedit.bsq import MultiScaleBSQ
from bitresedit.probe import Probe
from bitresedit.recipes import recipe
from bitresedit.scene_model import SceneModel
from bitresedit.tokenizer import SceneTokenizer
from bitresedit.var_transformer import Cond, KVCache, VARConfig, VARTransformer

torch.set_num_threads(1)  # the networks of these tests are too small for two threads to help
sys.path.append(str(Path(__file__).parent))  # for the modules here that several test modules share

TINY_SCHEDULE = [(1, 1), (2, 2), (4, 4), (8, 8), (8, 8)]


class TinyBackbone:
    """A random transformer over 8x8 codes of 6 bits, and a fixed linear image code of 4x4 patches.

    It draws nothing sensible, but it has every part that an editor touches, in milliseconds.
    """

    def __init__(self, schedule=TINY_SCHEDULE, d: int = 6, seed: int = 0, sharpness: float = 8.0) -> None:
        self.schedule, self.d, self.patch = list(schedule), d, 4
        self.device, self.dtype = torch.device("cpu"), torch.float32
        rows, columns = self.schedule[-1]
        self.image_size = (self.patch * rows, self.patch * columns)
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            config = VARConfig(depth=2, width=32, heads=2, d=d, text_dim=16, null_tokens=8, position_embedding=True)
            self.transformer = VARTransformer(config, self.schedule).eval().requires_grad_(False)
            self.words = torch.randn(257, 16)
            self.basis = torch.linalg.qr(torch.randn(3 * self.patch**2, 3 * self.patch**2)).Q[:d]
            self.kernel = torch.randn(3 * self.patch**2, d, 3, 3) / 8
        # A fresh model is nearly indifferent to text; sharpened, the prompts disagree and the limits bind.
        self.transformer.head.weight.mul_(sharpness)
        self.transformer.head_nm.ada_lin[1].weight.mul_(30)
        self.bsq = MultiScaleBSQ(self.schedule, d)
        self.default_config: dict[str, float] = {}

    def encode_image(self, image: torch.Tensor) -> list[torch.Tensor]:
        patches = nnf.pixel_unshuffle(image, self.patch)
        return self.bsq.encode(torch.einsum("nc,bchw->bnhw", self.basis, patches))

    def decode(self, latent: torch.Tensor) -> torch.Tensor:
        return torch.tanh(nnf.pixel_shuffle(nnf.conv2d(latent, self.kernel, padding=1), self.patch))

    def text(self, prompts: list[str]) -> Cond:
        rows = [prompt.split() or ["<nothing>"] for prompt in prompts]
        longest = max(map(len, rows))
        words = tuple((*row, *[""] * (longest - len(row))) for row in rows)
        ids = torch.tensor([[zlib.crc32(word.encode()) % 257 for word in row] for row in words])
        mask = torch.tensor([[bool(word) for word in row] for row in words])
        return self.transformer.condition(self.words[ids], mask, words)

    def null_text(self, batch: int, kind: str = "empty", tokens: int | None = None) -> Cond:
        return self.text([""] * batch) if kind == "empty" else self.transformer.null_condition(batch, tokens)

    def start(self, cond: Cond) -> torch.Tensor:
        return self.transformer.start(cond)

    def cache(self) -> KVCache:
        return KVCache()

    def logits(self, x: torch.Tensor, cond: Cond, k: int, cache: KVCache) -> torch.Tensor:
        return self.transformer.logits(x, cond, k, cache)

    def next_input(self, latent: torch.Tensor, k: int) -> torch.Tensor:
        return self.transformer.embed(latent, k)


@pytest.fixture(scope="session")
def tiny() -> TinyBackbone:
    return TinyBackbone()


@pytest.fixture(scope="session")
def make_tiny() -> Callable[..., TinyBackbone]:
    return TinyBackbone


@pytest.fixture
def photo() -> np.ndarray:
    """A smooth colourful 32x32 picture: the tiny backbone's own size."""
    rows, columns = np.mgrid[0:32, 0:32] / 31
    waves = [0.5 + 0.4 * np.sin(6 * rows + 2 * c * columns + c) for c in range(3)]
    return (255 * np.stack(waves, axis=-1)).astype(np.uint8)


@pytest.fixture
def left_mask() -> np.ndarray:
    """A block at the left: the gate is closed on the right half of the 8x8 grid."""
    mask = np.zeros((32, 32), dtype=bool)
    mask[8:20, 0:8] = True
    return mask


def small_scene_model(seed: int = 0) -> SceneVAR:
    """The scene backbone's real classes at 32x32 with random weights: draws noise, in milliseconds."""
    plan = recipe("smoke")
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        tokenizer = SceneTokenizer(plan.tokenizer)
        model = SceneModel(plan.transformer, plan.tokenizer.schedule, plan.text_layers)
    model.var.head.weight.data.mul_(20)
    return SceneVAR(tokenizer, model)


@pytest.fixture(scope="session")
def scene_model() -> SceneVAR:
    return small_scene_model()


@pytest.fixture(scope="session")
def scene_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights of `scene_model` as `bitresedit train` writes them, for --ckpt."""
    return small_scene_model().save(
        tmp_path_factory.mktemp("model") / "small.safetensors", recipe("smoke").text_layers, {}
    )


def _saved(name: str, factory: pytest.TempPathFactory) -> Path:
    import tiny_networks

    return getattr(tiny_networks, f"save_{name}")(factory.mktemp(name))


@pytest.fixture(scope="session")
def infinity_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Infinity in the files of the published one."""
    return _saved("infinity", tmp_path_factory)


@pytest.fixture(scope="session")
def t5_folder(infinity_folder: Path) -> Path:
    """The tiny Infinity's text encoder."""
    return infinity_folder / "flan-t5-xl"


@pytest.fixture(scope="session")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """PIE-Bench with three pictures."""
    return _saved("piebench", tmp_path_factory)


@pytest.fixture(scope="session")
def squeezenet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny network for LPIPS."""
    return _saved("squeezenet", tmp_path_factory)


@pytest.fixture(scope="session")
def dino(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny DINO."""
    return _saved("dino", tmp_path_factory)


@pytest.fixture(scope="session")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny CLIP."""
    return _saved("clip", tmp_path_factory)


def _print_warning(message, category, filename, lineno, file=None, line=None) -> None:
    sys.stderr.write(warnings.formatwarning(message, category, filename, lineno, line))


@dataclass
class Ran:
    """A finished command."""

    code: int
    out: str
    err: str


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """Run a command line in an empty folder, as the console script does."""
    from bitresedit.cli import app

    monkeypatch.chdir(tmp_path)

    def command(*args: object) -> Ran:
        capfd.readouterr()
        with warnings.catch_warnings():
            # A warning is printed, as in a user's terminal, and not made an error, as elsewhere in tests.
            warnings.simplefilter("default")
            warnings.showwarning = _print_warning
            with pytest.raises(SystemExit) as end:
                app([str(a) for a in args], prog_name="bitresedit")
        captured = capfd.readouterr()
        return Ran(int(end.value.code or 0), captured.out, captured.err)

    return command


@pytest.fixture
def picture(tmp_path: Path, photo: np.ndarray) -> Path:
    """Write the photo as a file where the commands run."""
    Image.fromarray(photo).save(tmp_path / "photo.png")
    return tmp_path / "photo.png"


@pytest.fixture
def fresh_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    """An untrained probe in the place of the bundled one: at 32 pixels neither reads anything."""
    monkeypatch.setattr(Probe, "load_default", classmethod(lambda cls: cls().eval()))
