"""Every Eval Ever: aggregate JSON 0.2.x and 0.3.0, instance JSON Lines, and Parquet as `Store.export` writes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from evalcards import strict_json
from evalcards.errors import SchemaError
from evalcards.importers.common import ImportResult, Options, each_file, existing
from evalcards.schema import read_log

_REQUIRED_INSTANCE = ("evaluation_id", "model_id", "evaluation_name", "sample_id", "evaluation")


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
    chosen = options or Options()
    found = existing(path)
    if not found.is_dir():
        return each_file([found], lambda file: _read(file, chosen))
    files = [file for kind in ("*.json", "*.jsonl", "*.parquet") for file in found.rglob(kind)]
    return each_file(sorted(files), lambda file: _read(file, chosen))


def _read(path: Path, options: Options) -> ImportResult:
    if path.suffix == ".jsonl":
        return _instances(path, options)
    if path.suffix == ".parquet":
        return _parquet(path, options)
    document = strict_json.read(path, max_bytes=options.max_bytes)
    result = ImportResult()
    for number, entry in enumerate(document if isinstance(document, list) else [document]):
        _add(entry, path, f"[{number}]" if isinstance(document, list) else "", options, result)
    return result


def _add(document: Any, path: Path, where: str, options: Options, result: ImportResult) -> None:
    """Read one record; where single results are at fault, keep the others and report these."""
    listed = document.get("evaluation_results") if isinstance(document, dict) else None
    results = listed if isinstance(listed, list) else []
    if options.model_id and isinstance(document, dict) and isinstance(document.get("model_info"), dict):
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
    details = dict(info.get("additional_details") or {})
    details["reported_id"] = str(info.get("id"))
    info |= {"id": model_id, "name": model_id.rpartition("/")[2], "additional_details": details}
    return {**document, "model_info": info}


def _instances(path: Path, options: Options) -> ImportResult:
    result = ImportResult()
    with path.open("rb") as stream:
        number = 0
        while text := stream.readline(options.max_bytes + 1):
            number += 1
            if not text.strip():
                continue
            try:
                if len(text) > options.max_bytes:
                    raise strict_json.too_large(str(path), len(text), options.max_bytes)
                record = strict_json.loads(text, str(path))
                missing = [key for key in _REQUIRED_INSTANCE if not isinstance(record, dict) or key not in record]
                if missing:
                    raise SchemaError(str(path), f"{', '.join(missing)}: required, but missing")
            except SchemaError as error:
                result.fail(str(path), f"line {number}", error.reason, rows=0)
                continue
            result.instances.setdefault(str(record["evaluation_id"]), []).append(record)
    return result


def _parquet(path: Path, options: Options) -> ImportResult:
    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowInvalid, OSError) as error:
        raise SchemaError(str(path), f"not Parquet: {str(error).splitlines()[0]}") from error
    if "document" not in file.schema_arrow.names:
        raise SchemaError(str(path), "no column 'document'", hint="want a logs.parquet as `evalcards export` writes it")
    result = ImportResult()
    row = 0
    for batch in file.iter_batches(columns=["document"], batch_size=1000):
        for text in batch.column(0).to_pylist():
            place = f"row {row}"
            row += 1
            try:
                _add(strict_json.loads(text or "", str(path)), path, place, options, result)
            except SchemaError as error:
                result.fail(str(path), place, error.reason, rows=0)
    return result
