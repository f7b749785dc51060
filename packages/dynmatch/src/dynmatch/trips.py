"""Trip tables of the NYC Taxi & Limousine Commission as a stream of requests and free cars."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dynmatch.costs import Real
from dynmatch.data import no_file, read_parquet
from dynmatch.protocol import Side, Update
from papers_shared.errors import InputError

KM_PER_DEGREE = 111.195


def _column(table: dict[str, list[Any]], path: Path, what: str, *names: str) -> list[Any]:
    lower = {name.lower(): name for name in table}
    for name in names:
        if name in lower:
            return table[lower[name]]
    raise InputError(f"{path}: no column for the {what}", hint=f"looked for {', '.join(names)}")


class Trips(NamedTuple):
    """Updates of a trip table; trips left out for a time that is none, and for coordinates that are 0 or missing."""

    updates: list[Update]
    skipped: int
    placeless: int


def read_taxi(path: Path, patience: Real = 15.0, limit: int | None = None, skip_bad: bool = False) -> Trips:
    """Turn a trip table with the columns of the NYC Taxi & Limousine Commission into requests and free cars.

    A trip is a request (A) at its pick-up from then on, and a free car (B) at its drop-off from then on; each leaves
    after ``patience`` minutes. The stream ends with the last arrival. Coordinates become km east and north of the mean
    pick-up.

    Parameters
    ----------
    path
        csv or parquet with pickup/dropoff longitude, latitude and datetime (the ``tpep_``, ``lpep_`` and plain names).
    patience
        Minutes.
    limit
        Most trips to read.
    skip_bad
        Count trips without a readable time instead of refusing them.

    Returns
    -------
    Trips

    Raises
    ------
    InputError
        A missing column or file, a time that is none, or no trip with coordinates.
    """
    table = read_parquet(path) if path.suffix.lower() == ".parquet" else _csv_columns(path)
    ends = {end: _end(table, path, end, old, limit) for end, old in (("pickup", "start"), ("dropoff", "end"))}
    bad = np.isnan(ends["pickup"][2]) | np.isnan(ends["dropoff"][2])
    if bad.any() and not skip_bad:
        line = int(np.flatnonzero(bad)[0]) + (1 if path.suffix.lower() == ".parquet" else 2)
        raise InputError(f"{path}, line {line}: a time that is none", hint="--skip-bad leaves such lines out")
    good = ~bad
    for lon, lat, _ in ends.values():
        good &= np.isfinite(lon) & np.isfinite(lat) & (lon != 0) & (lat != 0)
    if not good.any():
        raise InputError(f"{path}: no trip has coordinates", hint="files since mid-2016 give zones instead")
    east, north = ends["pickup"][0][good].mean(), ends["pickup"][1][good].mean()
    shrink = math.cos(math.radians(north))
    events: list[tuple[float, int, Side, int, tuple[float, ...] | None]] = []
    sides: tuple[tuple[Side, str], ...] = (("A", "pickup"), ("B", "dropoff"))
    for side, end in sides:
        lon, lat, minute = ends[end]
        for i in np.flatnonzero(good).tolist():
            point = (float((lon[i] - east) * KM_PER_DEGREE * shrink), float((lat[i] - north) * KM_PER_DEGREE))
            events.append((float(minute[i]), 1, side, i, point))
            events.append((float(minute[i]) + patience, 0, side, i, None))
    events.sort(key=lambda e: e[:4])
    while events[-1][4] is None:
        events.pop()
    updates = [
        Update("insert", side, f"{side}{i}", point) if point else Update("delete", None, f"{side}{i}")
        for _, _, side, i, point in events
    ]
    return Trips(updates, int(bad.sum()), int((~bad & ~good).sum()))


def _csv_columns(path: Path) -> dict[str, list[Any]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = list(csv.DictReader(file, skipinitialspace=True))
    except OSError as error:
        raise no_file(path, error) from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text") from error
    return {name: [row[name] for row in rows] for name in (rows[0] if rows else {})}


def _end(
    table: dict[str, list[Any]], path: Path, end: str, old: str, limit: int | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Longitudes, latitudes and minutes of one end of the trips."""
    lon = _column(table, path, f"{end} longitude", f"{end}_longitude", f"{old}_lon")
    lat = _column(table, path, f"{end} latitude", f"{end}_latitude", f"{old}_lat")
    names = (f"tpep_{end}_datetime", f"lpep_{end}_datetime", f"{end}_datetime", f"trip_{end}_datetime")
    when = _column(table, path, f"{end} time", *names)
    return (
        np.array([_degrees(v) for v in lon[:limit]]),
        np.array([_degrees(v) for v in lat[:limit]]),
        np.array([_minute(v) for v in when[:limit]]),
    )


def _minute(value: Any) -> float:
    try:
        when = np.datetime64(str(value).strip().replace(" ", "T"), "s")
    except ValueError:
        return math.nan
    return math.nan if np.isnat(when) else float(when.astype(np.int64)) / 60.0


def _degrees(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        return math.nan


def is_taxi(path: Path) -> bool:
    """Tell whether a csv or parquet file has the columns of a trip table."""
    try:
        if path.suffix.lower() == ".parquet":
            import pyarrow.parquet as pq

            names = pq.read_schema(path).names
        elif path.suffix.lower() == ".csv":
            with path.open(encoding="utf-8-sig") as file:
                names = file.readline().split(",")
        else:
            return False
    except (OSError, ValueError):
        return False
    return any("pickup" in name.lower() or "start_lon" in name.lower() for name in names)
