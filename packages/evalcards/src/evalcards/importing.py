"""Files into a store, in batches of one transaction each and with a ledger, so that a killed import goes on."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import duckdb

from evalcards import strict_json
from evalcards.errors import ImportFailure, InputError
from evalcards.importers import ImportResult, Options, read_any
from evalcards.importers.detect import candidates
from evalcards.importers.eee import eee
from evalcards.store import Store

BATCH = 500
"""Files in one transaction: one transaction per file would cost 30 ms each."""


class ImportReport(NamedTuple):
    """What an import did.

    Attributes
    ----------
    files, skipped : int
        Files read now, and files that the ledger says were read before.
    found, rows, failed : int
        Results met; those that became rows; those in the failure report. ``found = rows + failed``.
    logs, duplicates : int
        Records added, and records that were there already.
    failures : list of ImportFailure
        The failure report.
    notices : list of str
        How something was read.
    """

    files: int = 0
    skipped: int = 0
    found: int = 0
    rows: int = 0
    failed: int = 0
    logs: int = 0
    duplicates: int = 0
    failures: tuple[ImportFailure, ...] = ()
    notices: tuple[str, ...] = ()


def expand(paths: Iterable[str | Path]) -> list[Path]:
    """Return the files that the paths stand for: files as given, folders by what is below.

    Raises
    ------
    InputError
        A path does not exist, or a folder holds nothing to read.
    """
    files: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            below = candidates(path)
            if not below:
                raise InputError(f"{path}: nothing to import here or below")
            files += below
        elif path.exists():
            files.append(path)
        else:
            raise InputError(f"{path}: no such file or folder")
    return list(dict.fromkeys(files))


def file_hash(path: Path, options: Options, max_bytes: int) -> str:
    """Return the identity of a file's content and options; a HELM run's is that of its statistics."""
    digest = hashlib.sha256(repr(options).encode())
    parts = [path] if path.name != "run_spec.json" else [path, path.parent / "stats.json"]
    for part in parts:
        if part.exists() and part.stat().st_size <= max_bytes:
            with part.open("rb") as file:
                while piece := file.read(1 << 20):
                    digest.update(piece)
        else:
            digest.update(f"{part.name} {part.stat().st_size if part.exists() else 0}".encode())
    return digest.hexdigest()


def import_files(
    store: Store,
    paths: Iterable[str | Path],
    options: Options | None = None,
    *,
    format: str | None = None,
    mapping: Mapping[str, Any] | str | Path | None = None,
    batch: int = BATCH,
    progress: Callable[[int, int], None] | None = None,
) -> ImportReport:
    """Read files into a store; what an earlier, perhaps killed, import has finished is not read again.

    Parameters
    ----------
    store
        Where to.
    paths
        Files and folders.
    options
        What the files do not say.
    format
        Read all as this format instead of detecting it.
    mapping
        For CSV.
    batch
        Files per transaction.
    progress
        Called with (files done, files in all) after each file.

    Returns
    -------
    ImportReport
    """
    chosen = options or Options()
    files = expand(paths)
    report = ImportReport()
    for start in range(0, len(files), batch):
        part = files[start : start + batch]
        hashes = {path: file_hash(path, chosen, chosen.max_bytes) for path in part}
        done = store.done(hashes.values())
        todo = [path for path in part if hashes[path] not in done]
        report = report._replace(skipped=report.skipped + len(part) - len(todo))
        gathered, ledger, origins = ImportResult(), [], {}
        seen: set[str] = set()
        for position, path in enumerate(todo):
            kind, found = _read(path, chosen, format, mapping)
            gathered.extend(found)
            if hashes[path] not in seen:
                seen.add(hashes[path])
                ledger.append((hashes[path], str(path), kind, len(found.logs), found.rows, found.failed))
            origins |= {log.evaluation_id: str(path) for log in found.logs}
            if progress:
                progress(start + len(part) - len(todo) + position + 1, len(files))
        report = _store_batch(store, gathered, ledger, origins, report, len(todo))
        if progress:
            progress(start + len(part), len(files))
    return report


def _read(
    path: Path, options: Options, name: str | None, mapping: Mapping[str, Any] | str | Path | None
) -> tuple[str, ImportResult]:
    target = path.parent if path.name == "run_spec.json" else path
    try:
        return read_any(target, options, name=name, mapping=mapping if path.suffix == ".csv" else None)
    except InputError as error:
        result = ImportResult()
        result.fail(str(path), "", getattr(error, "reason", None) or str(error), rows=0)
        return name or "unknown", result


def _store_batch(
    store: Store, gathered: ImportResult, ledger: list[Any], origins: dict[str, str], report: ImportReport, files: int
) -> ImportReport:
    if gathered.models:
        known = {model for (model,) in store.fetch("SELECT model_id FROM models")}
        store.add_models([model for model in gathered.models if model.id not in known])
    added = store.add(
        gathered.logs, failures=gathered.failures, instances=gathered.instances, ledger=ledger, origins=origins
    )
    return ImportReport(
        report.files + files,
        report.skipped,
        report.found + gathered.found,
        report.rows + gathered.rows,
        report.failed + gathered.failed,
        report.logs + added.logs,
        report.duplicates + added.duplicates,
        (*report.failures, *gathered.failures),
        (*report.notices, *gathered.notices),
    )


def import_remote(store: Store, url: str, options: Options | None = None) -> ImportReport:
    """Read a remote Parquet file of EEE records.

    DuckDB's ``httpfs`` reads only the column it needs; where that extension is not installed, the file is downloaded,
    at most ``max_bytes`` of it.

    Parameters
    ----------
    store
        Where to.
    url
        ``http://`` or ``https://``; a Parquet file with a column ``document``.
    options
        What the file does not say.

    Raises
    ------
    InputError
        No such address, no Parquet, or over the cap.
    """
    chosen = options or Options()
    if not url.startswith(("http://", "https://")):
        raise InputError(f"{url}: not a remote address", hint="want http:// or https://")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "remote.parquet"
        if not _by_httpfs(url, path):
            _download(url, path, chosen.max_bytes)
        result = eee(path, chosen)
    result.failures = [
        ImportFailure(url, f.where, f.reason, f.rows) if f.path == str(path) else f for f in result.failures
    ]
    return _store_batch(store, result, [], {log.evaluation_id: url for log in result.logs}, ImportReport(), 1)


def _by_httpfs(url: str, path: Path) -> bool:
    """Copy the documents with httpfs if it is installed; never install it, which would touch the network unasked."""
    connection = duckdb.connect(":memory:")
    try:
        connection.execute("LOAD httpfs")
        connection.execute(f"COPY (SELECT document FROM read_parquet($url)) TO '{path}' (FORMAT parquet)", {"url": url})
    except duckdb.Error:
        return False
    finally:
        connection.close()
    return True


def _download(url: str, path: Path, most: int) -> None:
    try:
        with urllib.request.urlopen(url, timeout=60) as answer, path.open("wb") as file:
            shutil.copyfileobj(_Capped(answer, most, url), file, 1 << 20)
    except (urllib.error.URLError, OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{url}: {error}") from error


class _Capped:
    """A stream that refuses to give more than a number of bytes."""

    def __init__(self, stream: Any, most: int, name: str) -> None:
        self.stream, self.left, self.most, self.name = stream, most, most, name

    def read(self, size: int = -1) -> bytes:
        """Read, and count."""
        data = self.stream.read(size)
        self.left -= len(data)
        if self.left < 0:
            raise strict_json.too_large(self.name, self.most - self.left, self.most)
        return data


def watch(
    store: Store, folder: Path, options: Options | None = None, *, seconds: float = 2.0, rounds: int | None = None,
    sleep: Callable[[float], None], mapping: Mapping[str, Any] | str | Path | None = None,
) -> Iterator[ImportReport]:  # fmt: skip
    """Import what appears in a folder, again and again.

    Parameters
    ----------
    store
        Where to.
    folder
        The folder; files that still grow are left for the next round.
    options
        What the files do not say.
    seconds
        Pause between rounds.
    rounds
        How many rounds; None is until interrupted.
    sleep
        The pause, ``time.sleep``.
    mapping
        For CSV.

    Yields
    ------
    ImportReport
        Of each round that read a file.
    """
    sizes: dict[Path, tuple[int, float]] = {}
    number = 0
    while rounds is None or number < rounds:
        if number:
            sleep(seconds)
        number += 1
        now = {path: (path.stat().st_size, path.stat().st_mtime) for path in candidates(folder) if path.exists()}
        settled = [path for path, state in now.items() if sizes.get(path) == state]
        sizes = now
        if settled:
            report = import_files(store, settled, options, mapping=mapping)
            if report.files:
                yield report
