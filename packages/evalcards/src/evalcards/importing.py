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
from evalcards.errors import ImportFailure, InputError, SchemaError
from evalcards.importers import ImportResult, Options
from evalcards.importers.common import refuse
from evalcards.importers.detect import candidates, read_parts
from evalcards.importers.eee import eee_parts
from evalcards.store import Store

BATCH = 500
"""Files in one transaction: one transaction per file would cost 30 ms each."""

_MOST_ROWS = 50_000
"""Results and samples held before they are stored, also within a file."""
_MOST_LOGS = 5_000
"""Records held before they are stored: a result that is a record weighs more than one of many in a record."""


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

    def plus(self, other: ImportReport) -> ImportReport:
        """Return the report of both imports."""
        return ImportReport(*(one + more for one, more in zip(self, other, strict=True)))


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


def file_hash(path: Path, options: Options, asked: str = "") -> str:
    """Return the identity of a file's content and of how it is read; a HELM run's is that of its statistics.

    Parameters
    ----------
    path
        The file.
    options
        What it does not say.
    asked
        The format it is read as and the mapping it is read by, as text.
    """
    digest = hashlib.sha256(f"{options!r} {asked}".encode())
    parts = [path] if path.name != "run_spec.json" else [path, path.parent / "stats.json"]
    for part in filter(Path.exists, parts):
        state = part.stat()
        if state.st_size > options.max_bytes:  # refused, or read piece by piece: not worth reading twice
            digest.update(f"{part.name} {state.st_size} {state.st_mtime_ns}".encode())
            continue
        with part.open("rb") as file:
            while piece := file.read(1 << 20):
                digest.update(piece)
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

    A file that gave nothing but failures is not finished: the next import tries it again.

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
    files = expand(paths)
    run = _Run(store, options or Options(), format, mapping)
    for start in range(0, len(files), batch):
        part = files[start : start + batch]
        hashes = {path: run.hash(path) for path in part}
        done = store.done(hashes.values())
        todo = [path for path in part if hashes[path] not in done]
        run.report = run.report._replace(skipped=run.report.skipped + len(part) - len(todo))
        for position, path in enumerate(todo):
            run.read(path, hashes[path])
            if progress:
                progress(start + len(part) - len(todo) + position + 1, len(files))
        run.flush()
        if progress:
            progress(start + len(part), len(files))
    return run.report


class _Run:
    """One import: what is read and not yet stored, and the report."""

    def __init__(
        self, store: Store, options: Options, format: str | None, mapping: Mapping[str, Any] | str | Path | None
    ) -> None:
        self.store, self.options, self.format, self.mapping = store, options, format, mapping
        self.report = ImportReport()
        told = mapping
        if isinstance(mapping, (str, Path)) and Path(mapping).is_file():
            told = Path(mapping).read_bytes()
        self._asked = {True: f"{format} {told!r}", False: f"{format}"}
        self._start()

    def _start(self) -> None:
        self.gathered = ImportResult()
        self.ledger: dict[str, tuple[str, str, str, int, int, int]] = {}
        self.origins: dict[str, str] = {}
        self.renewed: list[str] = []
        self.held = 0

    def hash(self, path: Path) -> str:
        """Return the identity of a file as this import reads it."""
        return file_hash(path, self.options, self._asked[path.suffix == ".csv"])

    def read(self, path: Path, identity: str) -> None:
        """Read a file; a large one is stored part by part, so that memory holds only one of them."""
        target = path.parent if path.name == "run_spec.json" else path
        self.renewed.append(str(target))
        kind, whole = self.format or "unknown", ImportReport(files=1)
        samples, silent = False, True
        try:
            mapping = self.mapping if path.suffix == ".csv" else None
            kind, parts = read_parts(target, self.options, name=self.format, mapping=mapping)
            for part in parts:
                whole = whole._replace(
                    logs=whole.logs + len(part.logs), rows=whole.rows + part.rows, failed=whole.failed + part.failed,
                    failures=(*whole.failures, *part.failures),
                )  # fmt: skip
                samples = samples or bool(part.instances)
                self.take(part, str(path))
                silent = silent and not (part.notices or part.models)
        except InputError as error:
            self.take(refused := _refused(target, error), str(path))
            whole = whole._replace(failures=(*whole.failures, *refused.failures))
        if silent and not (whole.logs or samples or whole.failures):
            self.take(refused := _refused(target, InputError(f"no results in it, read as {kind}")), str(path))
            whole = whole._replace(failures=tuple(refused.failures))
        self.report = self.report._replace(files=self.report.files + 1)
        if whole.logs or samples or not whole.failures:
            self.ledger[identity] = (identity, str(path), kind, whole.logs, whole.rows, whole.failed)

    def take(self, part: ImportResult, origin: str) -> None:
        """Keep what was read, and store it if it is much."""
        self.gathered.extend(part)
        self.origins |= {log.evaluation_id: origin for log in part.logs}
        self.held += part.rows + sum(map(len, part.instances.values()))
        if self.held > _MOST_ROWS or len(self.gathered.logs) > _MOST_LOGS:
            self.flush()

    def flush(self) -> None:
        """Store what was read, in one transaction, and add it to the report."""
        found, report = self.gathered, self.report
        if found.models:
            known = {model for (model,) in self.store.fetch("SELECT model_id FROM models")}
            self.store.add_models([model for model in found.models if model.id not in known])
        added = self.store.add(
            found.logs, failures=found.failures, instances=found.instances, ledger=self.ledger.values(),
            origins=self.origins, renewed=self.renewed,
        )  # fmt: skip
        self.report = report._replace(
            found=report.found + found.found,
            rows=report.rows + found.rows,
            failed=report.failed + found.failed,
            logs=report.logs + added.logs,
            duplicates=report.duplicates + added.duplicates,
            failures=(*report.failures, *found.failures),
            notices=(*report.notices, *found.notices),
        )
        self._start()


def _refused(path: Path, error: InputError) -> ImportResult:
    """Return the failure of a whole file; its path is told once."""
    result = ImportResult()
    if isinstance(error, SchemaError):
        refuse(result, path, error)
    else:
        result.fail(str(path), "", str(error).removeprefix(f"{path}: "), rows=0)
    return result


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
        run = _Run(store, chosen, None, None)
        run.renewed.append(url)
        for part in eee_parts(path, chosen):
            part.failures = [ImportFailure(url, f.where, f.reason, f.rows) for f in part.failures]
            run.take(part, url)
        run.flush()
    return run.report._replace(files=1)


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
        reason = getattr(error, "reason", None) or error
        said = getattr(reason, "strerror", None) or reason
        raise InputError(f"{url} cannot be read: {said}") from error


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
    sleep: Callable[[float], None], format: str | None = None,
    mapping: Mapping[str, Any] | str | Path | None = None,
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
    format
        Read all as this format instead of detecting it.
    mapping
        For CSV.

    Yields
    ------
    ImportReport
        Of each round that read a file.
    """
    seen: dict[Path, tuple[int, float]] = {}
    tried: dict[Path, tuple[int, float]] = {}
    number = 0
    while rounds is None or number < rounds:
        if number:
            sleep(seconds)
        number += 1
        now = {path: (path.stat().st_size, path.stat().st_mtime) for path in candidates(folder) if path.exists()}
        settled = {path: state for path, state in now.items() if seen.get(path) == state != tried.get(path)}
        seen = now
        if settled:
            tried |= settled
            report = import_files(store, settled, options, format=format, mapping=mapping)
            if report.files:
                yield report
