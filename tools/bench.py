"""Turn pytest-benchmark's raw file into ``results/small/bench.json`` and print each ratio to the peer.

A benchmark group is one comparison. In it, the benchmark with ``extra_info["role"] = "peer"`` is what the others
are compared with; ``extra_info["target"]`` states the specification's figure. Everything else in ``extra_info`` is
kept as measured.

``python tools/bench.py PACKAGE RAW.json``
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from papers import ROOT, Paper
from papers_shared.artifacts import provenance, write_json


def compact(raw: dict[str, Any]) -> list[dict[str, Any]]:
    """Medians, quartiles and ratios to the peer, one entry per group, in the order of the file."""
    groups: dict[str, list[dict[str, Any]]] = {}
    for entry in raw["benchmarks"]:
        groups.setdefault(entry["group"] or entry["name"], []).append(entry)
    result = []
    for group, entries in groups.items():
        peer = next((e for e in entries if e["extra_info"].get("role") == "peer"), None)
        rows = []
        for entry in entries:
            stats, extra = entry["stats"], dict(entry["extra_info"])
            row = {
                "name": extra.pop("label", entry["name"].removeprefix("bench_").removeprefix("test_")),
                "role": extra.pop("role", "ours"),
                "median_seconds": stats["median"],
                "quartiles_seconds": [stats["q1"], stats["q3"]],
                "rounds": stats["rounds"],
            }
            if peer is not None and entry is not peer:
                row["ratio_to_peer"] = stats["median"] / peer["stats"]["median"]
            if extra:
                row["measured"] = extra
            rows.append(row)
        result.append({"group": group, "benchmarks": rows})
    return result


def seconds(value: float) -> str:
    """A duration for people: three significant digits and a fitting unit."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value / 1e-9:.3g} ns"


def table(groups: list[dict[str, Any]]) -> str:
    """The comparisons as a Markdown table."""
    lines = ["| comparison | what | median | ratio to peer | measured |", "|---|---|---|---|---|"]
    for group in groups:
        for row in group["benchmarks"]:
            ratio = f"{row['ratio_to_peer']:.3g}" if "ratio_to_peer" in row else row["role"]
            measured = "; ".join(
                f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}"
                for key, value in row.get("measured", {}).items()
            )
            cells = [group["group"], row["name"], seconds(row["median_seconds"]), ratio, measured]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main(name: str, raw_file: str) -> None:
    """Write the package's ``bench.json`` and print its table."""
    paper = Paper(ROOT / "packages" / name)
    raw = json.loads(Path(raw_file).read_text())
    groups = compact(raw)
    document = {
        "package": name,
        "version": paper.project["version"],
        "provenance": {**provenance(package=name), **raw["machine_info"]},
        "groups": groups,
    }
    write_json(paper.results / "bench.json", document)
    print(table(groups))


if __name__ == "__main__":
    main(*sys.argv[1:])
