"""Pictures to edit: the bundled samples, suites of rendered edits with known truth, and folders of a user's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from bitresedit.errors import BitResEditError
from bitresedit.scenes.edits import KINDS, SAMPLE, EditPair, render_pairs, sample_edit
from papers_shared.errors import InputError

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".tif", ".tiff")

#: Edits of the main object, which a look inside the mask can judge.
OBJECT_KINDS = ("colour", "material", "shape", "size")
#: Edits whose mask covers most of the picture.
BACKGROUND_KINDS = ("ground", "sky")

_SAMPLE_SEED = 2026


@dataclass(frozen=True)
class Sample:
    """A rendered picture, the edit asked for, and what the right answer looks like.

    Attributes
    ----------
    name
        Name for the command line and for files.
    image, truth
        RGB pictures before and after.
    mask
        Bool ``[H, W]``: every pixel that may change.
    source, target
        Captions.
    pair
        The two scenes.
    """

    name: str
    image: Image.Image
    truth: Image.Image
    mask: np.ndarray
    source: str
    target: str
    pair: EditPair

    @property
    def wanted(self) -> dict[str, str | None]:
        """Changed factors with their new values, as the probe is asked about them."""
        return self.pair.changed


def sample_names() -> list[str]:
    """Name the bundled samples: the default first, then one for each kind of edit."""
    return ["default", *KINDS]


def load_sample(name: str = "default", size: int = 96) -> Sample:
    """Render one of the bundled samples.

    Raises
    ------
    BitResEditError
        If there is no such sample.
    """
    if name not in sample_names():
        raise BitResEditError(f"no sample '{name}'", f"samples: {', '.join(sample_names())}")
    if name == "default":
        return _rendered(["default"], [SAMPLE], size)[0]
    rng = np.random.default_rng((_SAMPLE_SEED, KINDS.index(name)))
    return _rendered([name], [sample_edit(rng, name)], size)[0]


def suite(count: int, kinds: Sequence[str] = OBJECT_KINDS, seed: int = 0, size: int = 96) -> list[Sample]:
    """Render a suite of edits; the kinds take turns.

    Parameters
    ----------
    count
        Number of edits.
    kinds
        Kinds of edits, from :data:`bitresedit.scenes.edits.KINDS`.
    seed
        Of the suite: the same seed gives the same pictures, and a longer suite begins with the shorter one.
    size
        Width and height in pixels.

    Returns
    -------
    list of Sample
        Named ``<kind>-<number>``.
    """
    numbers = range(count)
    chosen = [kinds[i % len(kinds)] for i in numbers]
    # The first entry sets this stream apart from every stream that training or the probe draws from.
    pairs = [
        sample_edit(np.random.default_rng((_SAMPLE_SEED, seed, i)), kind)
        for i, kind in zip(numbers, chosen, strict=True)
    ]
    return _rendered([f"{kind}-{i:03d}" for i, kind in zip(numbers, chosen, strict=True)], pairs, size)


def _rendered(names: Sequence[str], pairs: Sequence[EditPair], size: int) -> list[Sample]:
    return [
        Sample(
            name, Image.fromarray(r.source), Image.fromarray(r.target), r.mask, p.source_caption, p.target_caption, p
        )
        for name, p, r in zip(names, pairs, render_pairs(pairs, size), strict=True)
    ]


def pictures_in(path: Path) -> list[Path]:
    """List the pictures of a folder by name, or the one file given.

    Raises
    ------
    InputError
        If nothing is there, or the folder holds no picture.
    """
    if not path.exists():
        raise InputError(f"no picture or folder at {path}")
    if not path.is_dir():
        return [path]
    found = sorted(p for p in path.iterdir() if p.suffix.lower() in SUFFIXES and p.is_file())
    found = [p for p in found if not p.name.startswith(".")]  # "._photo.jpg" is what macOS notes beside photo.jpg
    if not found:
        raise InputError(f"{path} holds no picture", f"picture files end in {', '.join(SUFFIXES)}")
    return found


def make_folder(path: Path) -> None:
    """Make a folder for outputs, with its parents; one that is there is left alone.

    Raises
    ------
    InputError
        If a file is in its place, or the place cannot be written to.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise InputError(f"cannot write to {path}: it, or a part of it, is a file", "name a folder") from None
    except OSError as error:
        raise InputError(f"cannot make the folder {path}: {error.strerror}", "name another") from None
