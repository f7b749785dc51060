"""Which format a file or folder has, by what is in it, not by what it is called."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from evalcards.errors import InputError
from evalcards.importers.common import ImportResult, Options, existing
from evalcards.importers.csv_table import csv
from evalcards.importers.eee import eee, eee_parts
from evalcards.importers.helm import helm
from evalcards.importers.hf_model_card import hf_model_card
from evalcards.importers.inspect_log import inspect
from evalcards.importers.lm_eval import lm_eval, samples_beside

FORMATS: dict[str, Callable[..., ImportResult]] = {
    "eee": eee,
    "lm_eval": lm_eval,
    "helm": helm,
    "inspect": inspect,
    "hf_model_card": hf_model_card,
    "csv": csv,
}
"""Format to reader."""

_HEAD = 1 << 16


def detect(path: str | Path) -> str:
    """Name the format of a file, or of a folder of one format.

    Parameters
    ----------
    path
        The file or folder.

    Returns
    -------
    str
        A key of `FORMATS`.

    Raises
    ------
    InputError
        It is none of them, does not exist, or a folder mixes several.
    """
    found = existing(path)
    if found.is_dir():
        return _folder(found)
    name = _file(found)
    if name is None:
        raise InputError(f"{path}: {_why_none(found)}")
    return name


def _why_none(path: Path) -> str:
    """Say why a file has none of the formats."""
    with path.open("rb") as file:
        head = file.read(_HEAD)
    if not head.strip():
        return "the file is empty"
    if head.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in head:
        return "not UTF-8 text; save it as UTF-8"
    return f"none of the formats {', '.join(FORMATS)}; name it with --format"


def _file(path: Path) -> str | None:
    if path.suffix == ".parquet":
        return "eee"
    if path.suffix == ".eval" or (path.suffix == ".zip" and zipfile.is_zipfile(path)):
        return "inspect"
    if path.suffix in (".md", ".markdown"):
        return "hf_model_card"
    if path.suffix in (".csv", ".tsv"):
        return "csv"
    if path.name in ("run_spec.json", "stats.json"):
        return "helm"
    if path.suffix not in (".json", ".jsonl"):
        return None
    with path.open("rb") as file:
        head = file.read(_HEAD).decode("utf-8", errors="replace").lstrip("\ufeff \t\r\n")
    if path.suffix == ".jsonl":
        return "lm_eval" if path.name.startswith("samples_") and '"doc_id"' in head else "eee"
    return _by_keys(head, path)


def _by_keys(head: str, path: Path) -> str | None:
    if re.search(r'"schema_version"\s*:|"evaluation_results"\s*:|"source_metadata"\s*:', head):
        return "eee"
    if re.search(r'"eval"\s*:\s*\{', head) and re.search(r'"(?:status|plan|version)"\s*:', head):
        return "inspect"
    if re.search(r'"results"\s*:\s*\{', head) or path.name.startswith("results_"):
        return "lm_eval"
    return "eee" if head.startswith(("{", "[")) else None


def _folder(folder: Path) -> str:
    if any(folder.rglob("run_spec.json")):
        return "helm"
    kinds = {kind for file in candidates(folder) if (kind := _file(file))}
    if len(kinds) == 1:
        return kinds.pop()
    if not kinds:
        raise InputError(f"{folder}: no file of the formats {', '.join(FORMATS)} here or below")
    raise InputError(f"{folder}: holds {', '.join(sorted(kinds))}", hint="give the files, or one folder per format")


def candidates(folder: Path) -> list[Path]:
    """Return the files below a folder that some reader may want, in order.

    A HELM run counts by its run_spec, lm-eval's samples by the results file that they are read with.
    """
    kinds = {".json", ".jsonl", ".eval", ".md", ".csv", ".parquet"}
    runs = {file.parent for file in folder.rglob("run_spec.json")}
    samples = {sample for results in folder.rglob("results_*.json") for sample in samples_beside(results)}
    files = [
        file
        for file in folder.rglob("*")
        if file.suffix in kinds and file.is_file() and (file.parent not in runs or file.name == "run_spec.json")
        and not (file.suffix == ".md" and file.name != "README.md") and not file.name.startswith(".")
        and file not in samples
    ]  # fmt: skip
    return sorted(files)


def read_any(
    path: str | Path,
    options: Options | None = None,
    *,
    name: str | None = None,
    mapping: Mapping[str, Any] | str | Path | None = None,
) -> tuple[str, ImportResult]:
    """Read a file of any format; return the format's name and what was read.

    Parameters
    ----------
    path
        A file, or a HELM run's folder.
    options
        What the file does not say.
    name
        The format, where it should not be detected.
    mapping
        For CSV.

    Raises
    ------
    InputError
        No such format, a CSV without a mapping, and as in `detect`.
    """
    kind, parts = read_parts(path, options, name=name, mapping=mapping)
    result = ImportResult()
    for part in parts:
        result.extend(part)
    return kind, result


def read_parts(
    path: str | Path,
    options: Options | None = None,
    *,
    name: str | None = None,
    mapping: Mapping[str, Any] | str | Path | None = None,
) -> tuple[str, Iterator[ImportResult]]:
    """Return the format's name and what is read, in parts that memory holds; see `read_any`."""
    kind = name or detect(path)
    if kind not in FORMATS:
        raise InputError(f"no format {kind!r}", hint=f"choose one of {', '.join(FORMATS)}")
    if kind == "eee":
        return kind, eee_parts(path, options)
    if kind == "csv":
        if mapping is None:
            raise InputError(f"{path}: a CSV needs --mapping FILE", hint="it says which columns are models and scores")
        return kind, iter([csv(path, mapping, options)])
    return kind, iter([FORMATS[kind](path, options)])
