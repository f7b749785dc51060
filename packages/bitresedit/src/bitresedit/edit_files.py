"""Edits from files to files: what the command line's ``edit`` reads, checks beforehand, and writes.

One edit is three files. Several go into a folder of their own, which keeps each as soon as it is done.
"""

from __future__ import annotations

import dataclasses
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bitresedit.backbones import Backbone
from bitresedit.baselines import METHODS, check_methods
from bitresedit.config import EditConfig
from bitresedit.data import SUFFIXES, Sample, load_sample, make_folder, pictures_in
from bitresedit.editor import EditItem, Editor, EditResult
from bitresedit.errors import BitResEditError, CheckpointError
from bitresedit.frames import psnr
from bitresedit.gate import MaskLike
from bitresedit.panel import draw_panel
from bitresedit.probe import Probe
from bitresedit.prompts import checked_prompts
from bitresedit.scores import score_edits
from papers_shared.artifacts import (
    RunDir,
    append_jsonl,
    provenance,
    read_jsonl,
    refuse_existing,
    write_figure,
    write_json,
)
from papers_shared.errors import InputError
from papers_shared.images import open_image, save_image

EDITS = "edits.jsonl"
"""Inside a folder of several edits: one line for each that is done."""


@dataclass(frozen=True)
class PlannedEdit:
    """One edit to make: the picture (a file or a bundled sample), the seed, and the files to write."""

    name: str
    picture: Path | Sample
    seed: int
    edited: Path
    panel: Path


@dataclass(frozen=True)
class Plan:
    """Everything an ``edit`` command will do, checked before a model is loaded.

    ``folder`` is None for one edit; several have a folder of their own.
    """

    edits: list[PlannedEdit]
    source: str
    target: str
    mask: MaskLike
    folder: Path | None
    record: Path


def plan_edits(
    image: Path | None,
    source: str | None,
    target: str | None,
    mask: str | None,
    sample: str,
    seeds: Sequence[int],
    out: Path | None,
    panel: Path | None,
    *,
    force: bool = False,
) -> Plan:
    """Check an ``edit`` command's input and name its output files.

    Parameters
    ----------
    image
        A picture, a folder of pictures, or None for a bundled sample.
    source, target, mask
        As given; a sample brings its own.
    sample
        Name of the sample.
    seeds
        One edit of each picture for each.
    out, panel
        As given; several edits go into the folder ``out``.
    force
        Whether the files of one edit may be replaced; a folder of edits is looked at when it is opened.

    Raises
    ------
    InputError
        If prompts are missing, files are there, there is no picture, or an output's name cannot be used.
    """
    pictures: list[tuple[str, Path | Sample]]
    if image is None:
        bundled = load_sample(sample)
        pictures = [(f"sample {sample}", bundled)]
        source, target = source or bundled.source, bundled.target if target is None else target
        where: MaskLike = bundled.mask if mask is None else mask
    else:
        if source is None or target is None:
            raise InputError(
                "a picture needs --source and --target", "say in words what it shows and what it should show"
            )
        pictures = [(str(path), path) for path in pictures_in(image)]
        where = "auto" if mask is None else mask
    checked_prompts(source, target)
    if len(seeds) == 1 and not (image is not None and image.is_dir()):
        planned = _single(*pictures[0], seeds[0], out, panel)
        record = Path("edit.json") if out is None else planned.edited.with_suffix(".json")
        if planned.panel.resolve() == planned.edited.resolve():
            raise InputError(f"--out and --panel are both {planned.panel}", "give each a file of its own")
        for option, path in (("--out", planned.edited), ("--panel", planned.panel)):
            if image is not None and path.resolve() == image.resolve():
                raise InputError(f"{option} {path} is the picture to edit", "choose another name; --force keeps it too")
        for path in (planned.edited, planned.panel, record):
            refuse_existing(path, force)
            make_folder(path.parent)
        return Plan([planned], source, target, where, None, record)
    folder = out or Path("edits")
    if folder.suffix or folder.is_file() or panel is not None:
        raise InputError("several edits are written to a folder", "give --out FOLDER, and no --panel")
    return Plan(_several(pictures, seeds, folder), source, target, where, folder, folder / "edit.json")


def _single(name: str, picture: Path | Sample, seed: int, out: Path | None, panel: Path | None) -> PlannedEdit:
    edited = out or Path("edited.png")
    panel = panel or (Path("panel.png") if out is None else edited.with_name(f"{edited.stem}-panel.png"))
    for option, path, known in (("--out", edited, SUFFIXES), ("--panel", panel, (".png", ".svg", ".pdf"))):
        if path.suffix.lower() not in known:
            raise InputError(f"{option} {path} is not the name of a picture", f"end it in {', '.join(known)}")
    return PlannedEdit(name, picture, seed, edited, panel)


def _several(pictures: Sequence[tuple[str, Path | Sample]], seeds: Sequence[int], folder: Path) -> list[PlannedEdit]:
    edits = []
    for name, picture in pictures:
        stem = picture.name if isinstance(picture, Sample) else picture.stem
        for seed in seeds:
            base = stem if len(seeds) == 1 else f"{stem}-seed{seed}"
            edits.append(PlannedEdit(name, picture, seed, folder / f"{base}.png", folder / f"{base}-panel.png"))
    written: dict[Path, str] = {}
    for planned in edits:
        for path in (planned.edited, planned.panel):
            other = written.setdefault(path, planned.name)
            if other != planned.name:
                raise InputError(f"the edits of {other} and {planned.name} would both be {path}", "rename one of them")
    return edits


def edit_files(
    backbone: Backbone,
    config: EditConfig,
    method: str,
    plan: Plan,
    *,
    batch: int = 8,
    force: bool = False,
    resume: bool = False,
    track: Callable[[Iterable[Any], str], Iterable[Any]] = lambda items, _: items,
) -> dict[str, Any]:
    """Make the planned edits, write pictures, panels and the record, and give the record.

    Parameters
    ----------
    backbone, config
        The model and its settings.
    method
        Name of a method.
    plan
        From :func:`plan_edits`.
    batch
        Seeds of one picture at once.
    force, resume
        Replace files that are there; go on with a folder of edits that was stopped.
    track
        Progress: called with the batches and a description.

    Returns
    -------
    dict
        Method, configuration, provenance, one entry an edit and, of a folder, the pictures that could not be edited
        (``"failed"``: name and reason); the others are done all the same.

    Raises
    ------
    InputError
        For whatever the user can put right, if no picture can be edited.
    """
    check_methods([method])
    failed: dict[str, InputError] = {}
    if plan.folder is None:
        entries = list(_edits(backbone, config, method, plan, plan.edits, batch, force, track, failed))
    else:
        where = plan.mask if isinstance(plan.mask, str) else "the sample's"
        settings = {"method": method, "source": plan.source, "target": plan.target, "mask": where}
        settings |= dataclasses.asdict(config)
        with RunDir(plan.folder, package="bitresedit", config=settings, force=force, resume=resume) as run:
            rows = read_jsonl(run / EDITS) if (run / EDITS).exists() else []
            done = {(row["image"], row["seed"]): row for row in rows}
            todo = [planned for planned in plan.edits if (planned.name, planned.seed) not in done]
            for entry in _edits(backbone, config, method, plan, todo, batch, True, track, failed):
                # The line goes last: it means that the edit's files are whole.
                append_jsonl(run / EDITS, entry)
                done[entry["image"], entry["seed"]] = entry
        entries = [done[key] for planned in plan.edits if (key := (planned.name, planned.seed)) in done]
    if failed and not entries:
        raise next(iter(failed.values()))
    record = {
        "method": method,
        "config": dataclasses.asdict(config),
        "record": str(plan.record),
        "edits": entries,
        "failed": [{"image": name, "reason": str(error)} for name, error in failed.items()],
        "provenance": provenance("bitresedit", seed=plan.edits[0].seed),
    }
    write_json(plan.record, record, force=force or plan.folder is not None)
    return record


def _edits(
    backbone: Backbone,
    config: EditConfig,
    method: str,
    plan: Plan,
    edits: Sequence[PlannedEdit],
    batch: int,
    force: bool,
    track: Callable[[Iterable[Any], str], Iterable[Any]],
    failed: dict[str, InputError],
) -> Iterator[dict[str, Any]]:
    """Make edits, write the files of each, and give its entry; keep a picture's failure for the end."""
    editor = Editor(backbone, config, METHODS[method])
    probe = _probe() if any(isinstance(e.picture, Sample) for e in edits) else None
    for chunk in track(_same_picture(edits, batch), "editing"):
        picture = chunk[0].picture
        try:
            loaded = picture.image if isinstance(picture, Sample) else open_image(picture)
            items = [EditItem(loaded, plan.source, plan.target, plan.mask, planned.seed) for planned in chunk]
            results = editor.edit_batch(items)
        except InputError as error:
            failed[chunk[0].name] = error
            continue
        for planned, result in zip(chunk, results, strict=True):
            yield _write(planned, result, plan, method, probe, force)


def _same_picture(edits: Sequence[PlannedEdit], size: int) -> list[list[PlannedEdit]]:
    chunks: list[list[PlannedEdit]] = []
    for planned in edits:
        if chunks and chunks[-1][0].name == planned.name and len(chunks[-1]) < size:
            chunks[-1].append(planned)
        else:
            chunks.append([planned])
    return chunks


def _probe() -> Probe | None:
    """Load the probe if its weights are there; an edit does not need it."""
    try:
        return Probe.load_default()
    except CheckpointError:
        return None


def _write(
    planned: PlannedEdit, result: EditResult, plan: Plan, method: str, probe: Probe | None, force: bool
) -> dict[str, Any]:
    known = _known_truth(planned.picture, plan)
    make_folder(planned.edited.parent)
    save_image(planned.edited, result.image, force=force)
    caption = (
        f"“{plan.source}” → “{plan.target}”, {method}, seed {planned.seed}. "
        "Orange: border of the mask. Grey: the gate is closed, the codes stay the source's."
    )
    write_figure(planned.panel, draw_panel(result, known.truth if known else None), caption, force=force)
    entry: dict[str, Any] = {
        "image": planned.name,
        "edited": str(planned.edited),
        "panel": str(planned.panel),
        "source": plan.source,
        "target": plan.target,
        **result.summary(),
    }
    if known is not None:
        truth = result.frame.pixels(known.truth)[0]
        entry["truth_psnr"] = psnr(result.pixels, truth, result.mask)
        if probe is not None:
            score = score_edits([known], [result], probe)[0]
            entry |= {key: score[key] for key in ("target_probability", "source_probability")}
    return entry


def _known_truth(picture: Path | Sample, plan: Plan) -> Sample | None:
    """Give the sample whose ground truth answers this edit, if its own prompts are used."""
    if isinstance(picture, Sample) and (plan.source, plan.target) == (picture.source, picture.target):
        return picture
    return None


def read_bits(path: Path, backbone: Backbone) -> list[Tensor]:
    """Read bits that ``encode`` wrote and check them against a backbone's schedule.

    Returns
    -------
    list of Tensor
        Bool ``[1, h_k, w_k, d]``.

    Raises
    ------
    BitResEditError
        If the file is not one of bits, or was made by another model.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = [file[name] for name in sorted(file.files)]
    except FileNotFoundError:
        raise BitResEditError(f"no file {path}") from None
    except (OSError, EOFError, ValueError, TypeError, AttributeError, zipfile.BadZipFile):
        # NumPy's own words would advise to allow pickled code; an empty file is an EOFError, a .npy has no members.
        raise BitResEditError(f"cannot read bits from {path}", "give an .npz file that encode wrote") from None
    fit = getattr(backbone, "fit", None)
    if fit is not None and arrays and arrays[-1].ndim == 3 and 0 not in arrays[-1].shape:
        fit(*arrays[-1].shape[:2])
    want = [(h, w, backbone.d) for h, w in backbone.schedule]
    if [a.shape for a in arrays] != want or any(a.dtype != np.bool_ for a in arrays):
        raise BitResEditError(
            f"{path} holds bits of another model", f"this one has {len(want)} scales of {backbone.d} bits a cell"
        )
    return [torch.from_numpy(array)[None].to(backbone.device) for array in arrays]
