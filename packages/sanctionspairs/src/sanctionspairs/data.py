"""The embedded default: SanctionsSim as published pairs with its truth, and 300 hard pairs written by hand."""

from __future__ import annotations

import csv
import gzip
import json
from importlib.resources import as_file, files
from pathlib import Path

from papers_shared.artifacts import write_bytes
from sanctionspairs.io import read_pairs, write_pairs
from sanctionspairs.records import Pair, entity
from sanctionspairs.simulate import Simulated, simulate

ASSETS = files("sanctionspairs") / "assets"
PAIRS, TRUTH, HARD = "sanctions_sim.jsonl.gz", "sanctions_sim_truth.json.gz", "hard.csv"


def default() -> Simulated:
    """Return the embedded SanctionsSim: 20,000 judged pairs and which entity each record describes."""
    with as_file(ASSETS / PAIRS) as path:
        pairs = list(read_pairs(path))
    numbers = json.loads(gzip.decompress((ASSETS / TRUTH).read_bytes()))
    plain = Simulated(pairs, {})
    truth = {str(record.id): f"e{number}" for record, number in zip(plain.entities, numbers, strict=True)}
    return Simulated(pairs, truth)


def write_default(folder: Path, n: int = 20_000, seed: int = 2026, *, force: bool = False) -> list[Path]:
    """Make SanctionsSim anew and write it with its truth; how the embedded files were made.

    Parameters
    ----------
    folder
        Made if missing.
    n, seed
        As in `simulate.simulate`; another version of faker draws other names.
    force
        Replace files of an earlier run.
    """
    made = simulate(n, seed)
    folder.mkdir(parents=True, exist_ok=True)
    numbers: dict[str, int] = {}
    order = [numbers.setdefault(made.truth[str(record.id)], len(numbers)) for record in made.entities]
    packed = gzip.compress(json.dumps(order, separators=(",", ":")).encode(), mtime=0)
    pairs = write_pairs(folder / PAIRS, made.pairs, force=force)
    return [pairs, write_bytes(folder / TRUTH, packed, force=force)]


def hard_pairs() -> list[Pair]:
    """Return the 300 pairs written by hand: what goes wrong in practice, each with the reason.

    Cells with several values separate them by `` ; ``; the two sides of a property stand in two columns.
    """
    rows = csv.DictReader((ASSETS / HARD).read_text(encoding="utf-8").splitlines())
    pairs = []
    for number, row in enumerate(rows, 1):
        sides = []
        for side in ("left", "right"):
            properties = {
                name.partition("_")[2]: [value.strip() for value in cell.split(" ; ")]
                for name, cell in row.items()
                if name.startswith(f"{side}_") and cell
            }
            schema = row["schema"].partition("/")[0 if side == "left" else 2] or row["schema"]
            data = {"id": f"hard-{number}-{side}", "schema": schema, "datasets": ["hard"], "properties": properties}
            sides.append(entity(data))
        pairs.append(Pair(sides[0], sides[1], row["judgement"]))
    return pairs


def hard_reasons() -> list[str]:
    """Return why each hard pair is judged as it is."""
    return [row["why"] for row in csv.DictReader((ASSETS / HARD).read_text(encoding="utf-8").splitlines())]
