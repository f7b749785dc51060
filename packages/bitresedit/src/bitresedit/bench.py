"""Run editing methods over a suite, item by item, so that a killed run goes on where it stopped."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bitresedit import piebench
from bitresedit.backbones import Backbone
from bitresedit.baselines import METHODS
from bitresedit.config import EditConfig
from bitresedit.data import Sample
from bitresedit.data import suite as make_suite
from bitresedit.editor import EditItem, Editor, EditResult
from bitresedit.errors import BitResEditError, PromptError
from bitresedit.probe import Probe
from bitresedit.prompts import strip_brackets
from bitresedit.scores import score_edits
from papers_shared.artifacts import RunDir, append_jsonl, read_jsonl, write_csv
from papers_shared.images import save_image

ROWS = "rows.jsonl"


@dataclass(frozen=True)
class Task:
    """One picture of a suite.

    Attributes
    ----------
    id
        Its name; with method and seed the key of a row.
    item
        The edit to make; its seed is replaced by each of the run's.
    origin
        What the scorer needs to know of it.
    """

    id: str
    item: EditItem
    origin: Any


Scorer = Callable[[Sequence[Task], Sequence[EditResult]], list[dict[str, Any]]]


def scene_tasks(samples: Sequence[Sample], probe: Probe | None) -> tuple[list[Task], Scorer]:
    """Turn rendered samples into tasks with their own masks, and give their scorer."""
    tasks = [Task(s.name, EditItem(s.image, s.source, s.target, s.mask), s) for s in samples]

    def score(done: Sequence[Task], results: Sequence[EditResult]) -> list[dict[str, Any]]:
        rows = score_edits([task.origin for task in done], results, probe)
        return [{"kind": task.origin.pair.kind, **row} for task, row in zip(done, rows, strict=True)]

    return tasks, score


def piebench_tasks(items: Sequence[piebench.Item], metrics: piebench.Metrics) -> tuple[list[Task], Scorer]:
    """Turn PIE-Bench items into tasks with the annotated masks, and give their scorer.

    The model sees the 512 x 512 picture as its largest centred crop of the right shape, which is all of it for
    a square schedule.
    """
    # Pictures are opened when their turn comes: all of them together would take half a gigabyte.
    tasks = [
        Task(i.id, EditItem(i.image_path, _prompt(i.original_prompt), _prompt(i.editing_prompt), i.mask), i)
        for i in items
    ]

    def score(done: Sequence[Task], results: Sequence[EditResult]) -> list[dict[str, Any]]:
        rows = [metrics.row(piebench.Pair(task.origin, r.image)) for task, r in zip(done, results, strict=True)]
        return [{k: v for k, v in row.items() if k != "id"} for row in rows]

    return tasks, score


def _prompt(text: str) -> str:
    """Keep a prompt's brackets if they pair, which tells the edited words, and drop them if they do not."""
    try:
        strip_brackets(text)
    except PromptError:
        return piebench.strip_brackets(text)
    return text


def load_suite(
    suite: str, count: int | None, data: Path | None, networks: Mapping[str, Path | None], device: str
) -> tuple[list[Task], Scorer]:
    """Load a suite by name with its scorer.

    Parameters
    ----------
    suite
        ``"scenes"`` or ``"piebench"``.
    count
        Number of scenes (60), or the most items of PIE-Bench to take (all).
    data
        PIE-Bench's folder.
    networks
        Folders of PIE-Bench's metric networks, by name.
    device
        Where those networks run.

    Raises
    ------
    BitResEditError
        If PIE-Bench's files or networks cannot be read, or the bundled probe cannot be.
    """
    if suite == "scenes":
        if given := [name for name, folder in {"data": data, **networks}.items() if folder is not None]:
            raise BitResEditError(
                f"--{given[0]} goes with --suite piebench",
                "rendered scenes are read by the bundled probe",
            )
        return scene_tasks(make_suite(count or 60), Probe.load_default())
    if data is None:
        raise BitResEditError("PIE-Bench needs its folder", "the one that holds mapping_file.json")
    items = piebench.load(data / "mapping_file.json", data)[:count]
    return piebench_tasks(items, piebench.Metrics(**networks, device=device))


def parse_shard(text: str) -> tuple[int, int]:
    """Read ``"2/8"``: the second of eight shards.

    Raises
    ------
    BitResEditError
        If it is not two numbers with ``1 <= i <= n``.
    """
    match = re.fullmatch(r"(\d+)/(\d+)", text)
    if not match or not 1 <= int(match[1]) <= int(match[2]):
        raise BitResEditError(f"--shard is '{text}'", "write i/n, for example 2/8 for the second of eight")
    return int(match[1]), int(match[2])


@dataclass(frozen=True)
class BenchSettings:
    """What a run does; a resumed run must agree.

    Attributes
    ----------
    suite, model
        Names for the record.
    methods
        Names from :data:`bitresedit.baselines.METHODS`.
    seeds
        Seeds of the sampler; every item is edited once with each.
    config
        Strengths, the same for all methods.
    count
        Items of the whole suite.
    shard
        ``(i, n)``: this run takes every ``n``-th item from the ``i``-th.
    """

    suite: str
    model: str
    methods: Sequence[str]
    seeds: Sequence[int]
    config: EditConfig
    count: int
    shard: tuple[int, int] = (1, 1)


def run_bench(
    backbone: Backbone,
    tasks: Sequence[Task],
    score: Scorer,
    settings: BenchSettings,
    out: Path,
    *,
    batch: int = 8,
    resume: bool = False,
    force: bool = False,
    track: Callable[[Iterable[Any], str], Iterable[Any]] = lambda items, _: items,
) -> pd.DataFrame:
    """Edit every task with every method and seed, and keep each row and picture as soon as it is there.

    Parameters
    ----------
    backbone
        The model.
    tasks, score
        From :func:`scene_tasks` or :func:`piebench_tasks`: the whole suite.
    settings
        Methods, seeds, strengths and shard.
    out
        Folder; a shard of several works in ``out/shard-i-of-n``.
    batch
        Edits at once.
    resume, force
        As for :class:`papers_shared.artifacts.RunDir`.
    track
        Progress: called with the batches and a description.

    Returns
    -------
    pandas.DataFrame
        The rows of all shards that are in ``out`` so far.
    """
    part, parts = settings.shard
    folder = out if parts == 1 else out / f"shard-{part}-of-{parts}"
    recorded = asdict(settings)
    with RunDir(folder, package="bitresedit", config=recorded, force=force, resume=resume) as run:
        rows = read_jsonl(run / ROWS) if (run / ROWS).exists() else []
        done = {(row["method"], row["id"], row["seed"]) for row in rows}
        todo = [
            (method, task, seed)
            for method in settings.methods
            for task in tasks[part - 1 :: parts]
            for seed in settings.seeds
            if (method, task.id, seed) not in done
        ]
        for method, chunk in track(list(_chunks(todo, batch)), "editing"):
            _edit_chunk(backbone, settings, score, method, chunk, run.path)
        table = collect_rows(out)
        write_csv(run / "rows.csv", table.to_dict("records"))
    return table


def _chunks(todo: Sequence[tuple[str, Task, int]], size: int) -> Iterator[tuple[str, list[tuple[Task, int]]]]:
    """Group the edits of one method that can go through the model together."""
    start = 0
    while start < len(todo):
        method = todo[start][0]
        chunk = [(task, seed) for name, task, seed in todo[start : start + size] if name == method]
        yield method, chunk
        start += len(chunk)


def _edit_chunk(
    backbone: Backbone,
    settings: BenchSettings,
    score: Scorer,
    method: str,
    chunk: Sequence[tuple[Task, int]],
    folder: Path,
) -> None:
    begun = time.perf_counter()
    editor = Editor(backbone, settings.config, METHODS[method])
    results = editor.edit_batch([replace(task.item, seed=seed) for task, seed in chunk])
    seconds = (time.perf_counter() - begun) / len(chunk)
    scores = score([task for task, _ in chunk], results)
    for (task, seed), result, values in zip(chunk, results, scores, strict=True):
        name = f"images/{method}/{task.id}-seed{seed}.png"
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        save_image(folder / name, result.image)
        # The row goes last: a row means that its picture is whole.
        append_jsonl(
            folder / ROWS,
            {"method": method, "id": task.id, "seed": seed, **_plain(values), "seconds": seconds, "image": name},
        )


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """Write NaN as None, and infinity (the PSNR of an untouched background) as 99: JSON has neither."""
    plain = {k: min(v, 99.0) if v == np.inf else v for k, v in values.items()}
    return {k: None if isinstance(v, float) and np.isnan(v) else v for k, v in plain.items()}


def collect_rows(out: Path) -> pd.DataFrame:
    """Read the rows of a run, or of all its shards."""
    files = sorted(out.glob(ROWS)) + sorted(out.glob(f"shard-*/{ROWS}"))
    return pd.DataFrame([row for file in files for row in read_jsonl(file)])


def summarise_bench(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Average the numbers by method, leaving out missing values and counting the rows.

    For PIE-Bench, ``empty_complement`` counts the rows without a background to score: their mask selects everything.
    """
    names = [
        c
        for c in table.columns
        if c not in ("seed", "editing_type_id") and pd.api.types.is_numeric_dtype(table[c]) and table[c].dtype != bool
    ]
    means = []
    for method, rows in table.groupby("method", sort=False):
        empty = {"empty_complement": int((rows["mask_fraction"] == 1).sum())} if "mask_fraction" in rows else {}
        means.append({"method": method, "edits": len(rows), **empty, **rows[names].mean().to_dict()})
    return means
