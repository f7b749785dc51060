"""How good an edit of a rendered scene is: does it show what was asked, and does it keep the rest."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from bitresedit.data import Sample
from bitresedit.editor import EditResult
from bitresedit.frames import psnr
from bitresedit.probe import CLASSES, MAIN_FACTORS, Probe

COLUMNS = (
    "target_correct",
    "target_probability",
    "source_probability",
    "background_psnr",
    "truth_psnr",
    "edge_distance",
    "kept_difference",
)


def score_edits(
    samples: Sequence[Sample], results: Sequence[EditResult], probe: Probe | None
) -> list[dict[str, float]]:
    """Score edits of rendered scenes.

    Parameters
    ----------
    samples
        What was asked, with the truth.
    results
        One edit of each sample.
    probe
        Reads the factors; without it the first three columns are NaN.

    Returns
    -------
    list of dict
        ``target_correct`` (1 if the probe reads every changed factor as asked), ``target_probability`` and
        ``source_probability`` (the probe's mean probability of the new and of the old values), ``background_psnr``
        against the source outside the mask, ``truth_psnr`` against the ground truth inside it,
        ``edge_distance`` to the source, and ``kept_difference`` of the codes where the gate is closed. Changed
        factors of the main object are read inside the mask, others in the whole picture.
    """
    read = [_read(sample, result, probe) for sample, result in zip(samples, results, strict=True)]
    rows = []
    for sample, result, (correct, wanted, old) in zip(samples, results, read, strict=True):
        truth = result.frame.pixels(sample.truth)[0]
        values = (
            correct,
            wanted,
            old,
            result.background_psnr,
            psnr(result.pixels, truth, result.mask),
            edge_distance(result.pixels, result.source_pixels),
            result.kept_difference(),
        )
        rows.append(dict(zip(COLUMNS, values, strict=True)))
    return rows


def _read(sample: Sample, result: EditResult, probe: Probe | None) -> tuple[float, float, float]:
    """Give whether all asked answers are read, and the mean probability of the asked and of the old ones."""
    if probe is None:
        return math.nan, math.nan, math.nan
    wanted, before = sample.wanted, sample.pair.source.shown
    inside = result.mask[None] if set(wanted) <= set(MAIN_FACTORS) else None
    answers = probe.factors(result.pixels[None], inside)
    correct, new, old = [], [], []
    for name, value in wanted.items():
        probabilities = answers[name][0]
        index, source = (CLASSES[name].index(v or "none") for v in (value, getattr(before, name)))
        correct.append(int(probabilities.argmax()) == index)
        new.append(float(probabilities[index]))
        old.append(float(probabilities[source]))
    return float(all(correct)), float(np.mean(new)), float(np.mean(old))


def edge_distance(
    image: Float[Tensor, "3 H W"], reference: Float[Tensor, "3 H W"], where: Bool[Tensor, "H W"] | None = None
) -> float:
    """Give the mean absolute difference of two pictures' edge maps (Sobel magnitude of luminance in [0, 1])."""
    from skimage.color import rgb2gray
    from skimage.filters import sobel

    maps = [
        torch.from_numpy(sobel(rgb2gray((picture.permute(1, 2, 0).clamp(-1, 1).numpy() + 1) / 2)))
        for picture in (image, reference)
    ]
    difference = (maps[0] - maps[1]).abs()
    return float((difference if where is None else difference[where]).mean())
