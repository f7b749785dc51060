"""Every Eval Ever: aggregate JSON 0.2.x and 0.3.0, instance JSON Lines, and Parquet as `Store.export` writes it.

A file of many records is read record by record, so that its size is no limit: what a record, a line or a Parquet row
may take at most is ``max_bytes``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from evalcards import json_stream, strict_json
from evalcards.errors import SchemaError
from evalcards.importers import common
from evalcards.importers.common import ImportResult, Options, mapping
from evalcards.schema import read_log

_REQUIRED_INSTANCE = ("evaluation_id", "model_id", "evaluation_name", "sample_id", "evaluation")
_WHOLE = 64 * 2**20
"""Bytes of a JSON array that is parsed at once: faster, and an error has its place in the file."""
_PART = 4 * 2**20
"""Text that one part of a large file stands for."""


def eee(path: str | Path, options: Options | None = None) -> ImportResult:
    """Read one EEE file, or every one below a folder.

    Parameters
    ----------
    path
        ``.json`` (one log, or a list of logs), ``.jsonl`` (instances), ``.parquet`` with a column ``document``, or a
        folder of these.
    options
        ``model_id`` replaces the model's id; the file's own is kept in ``additional_details.reported_id``.

    Returns
    -------
    ImportResult
    """

    def whole(file: Path) -> ImportResult:
        result = ImportResult()
        for part in eee_parts(file, options):
            result.extend(part)
        return result

    return common.read_tree(path, ("*.json", "*.jsonl", "*.parquet"), whole)


def eee_parts(path: str | Path, options: Options | None = None) -> Iterator[ImportResult]:
    """Read one EEE file in parts that memory holds; see `eee`."""
    file, chosen = common.existing(path), options or Options()
    reader, add = {".jsonl": (_lines, _add_instance), ".parquet": (_rows, _add)}.get(file.suffix, (_records, _add))
    result, size = ImportResult(), 0
    try:
        for where, record, length in reader(file, chosen):
            if isinstance(record, SchemaError):
                common.refuse(result, file, record, where)
            else:
                add(record, file, where, chosen, result)
            size += length
            if size > _PART:
                yield result
                result, size = ImportResult(), 0
    except SchemaError as error:
        common.refuse(result, file, error)
    yield result


def _records(path: Path, options: Options) -> Iterator[tuple[str, Any, int]]:
    """Yield (place, record, size) of a JSON file."""
    size = path.stat().st_size
    if size > min(_WHOLE, options.max_bytes) and json_stream.opening(path) == "[":
        for position, record, length in json_stream.stream_items(path, max_bytes=options.max_bytes):
            yield f"[{position}]", record, length
        return
    if size > options.max_bytes and json_stream.opening(path) == "{":
        # A record's identity is the hash of all of it, and its faults are told together: it is held whole.
        raise SchemaError(
            str(path), f"one record of {size:,} bytes, over the cap of {options.max_bytes:,}",
            hint="a record is held whole; raise --max-bytes if you trust it and have many times that in memory, or "
            "spread its results over several records",
        )  # fmt: skip
    document = strict_json.read(path, max_bytes=options.max_bytes)
    if isinstance(document, list):
        yield from ((f"[{number}]", record, size // len(document)) for number, record in enumerate(document))
    else:
        yield "", document, size


def _lines(path: Path, options: Options) -> Iterator[tuple[str, Any, int]]:
    """Yield (place, record, size) of a JSON Lines file."""
    for number, record, size in json_stream.lines(path, max_bytes=options.max_bytes):
        yield f"line {number}", record, size


def _rows(path: Path, options: Options) -> Iterator[tuple[str, Any, int]]:
    """Yield (place, record, size) of a Parquet file."""
    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise SchemaError(str(path), f"not Parquet: {str(error).splitlines()[0]}") from error
    if "document" not in file.schema_arrow.names:
        raise SchemaError(str(path), "no column 'document'", hint="want a logs.parquet as `evalcards export` writes it")
    row = 0
    for batch in file.iter_batches(columns=["document"], batch_size=100):
        for text in batch.column(0).to_pylist():
            record: Any
            try:
                if not isinstance(text, str):
                    raise SchemaError(str(path), "the document is no text")
                if len(text) > options.max_bytes:
                    raise strict_json.too_large(str(path), len(text), options.max_bytes)
                record = strict_json.loads(text, str(path))
            except SchemaError as error:
                record = error
            yield f"row {row}", record, len(text or "")
            row += 1


def _add(document: Any, path: Path, where: str, options: Options, result: ImportResult) -> None:
    """Read one record; where single results are at fault, keep the others and report these."""
    results = common.listed(mapping(document).get("evaluation_results"))
    if options.model_id and isinstance(mapping(document).get("model_info"), dict):
        document = _renamed(document, options.model_id)
    result.found += len(results)
    try:
        result.logs.append(read_log(document, str(path)))
        return
    except SchemaError as error:
        if not results:
            result.fail(str(path), where, error.reason, rows=0)
            return
        whole = error
    good = []
    faults = []
    for index, entry in enumerate(results):
        try:
            read_log({**document, "evaluation_results": [entry]}, str(path))
        except SchemaError as error:
            faults.append((index, error.reason.replace("evaluation_results[0]", f"evaluation_results[{index}]")))
        else:
            good.append(entry)
    if not good:
        result.fail(str(path), where, whole.reason, rows=len(results))
        return
    for index, reason in faults:
        result.fail(str(path), f"{where}evaluation_results[{index}]", reason)
    result.logs.append(read_log({**document, "evaluation_results": good}, str(path)))


def _renamed(document: dict[str, Any], model_id: str) -> dict[str, Any]:
    info = dict(document["model_info"])
    details = {**mapping(info.get("additional_details")), "reported_id": str(info.get("id"))}
    info |= {"id": model_id, "name": model_id.rpartition("/")[2], "additional_details": details}
    return {**document, "model_info": info}


def _add_instance(record: Any, path: Path, where: str, _options: Options, result: ImportResult) -> None:
    """Keep one instance record under its evaluation."""
    missing = [key for key in _REQUIRED_INSTANCE if key not in mapping(record)]
    if missing:
        result.fail(str(path), where, f"{', '.join(missing)}: required, but missing", rows=0)
    else:
        result.instances.setdefault(str(record["evaluation_id"]), []).append(record)
