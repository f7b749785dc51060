"""The generated parts of the READMEs: the table of papers, each paper's claims and each paper's benchmarks.

A generated part stands between ``<!-- NAME:begin -->`` and ``<!-- NAME:end -->``; everything else is prose.
``python tools/readme.py`` rewrites the parts; ``stale(root)`` tells which no longer say what the results say.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from bench import table as bench_table
from papers import ROOT, Paper, papers
from papers_shared.artifacts import write_text
from papers_shared.claims import render_table


def replace(text: str, name: str, body: str) -> str:
    """Put ``body`` between the markers of ``name``; text without these markers comes back unchanged."""
    pattern = re.compile(rf"(<!-- {name}:begin -->\n).*?(<!-- {name}:end -->)", re.DOTALL)
    return pattern.sub(lambda m: f"{m[1]}{body.rstrip()}\n{m[2]}", text)


def score(paper: Paper) -> str:
    """How many of the claims held here, for the table of papers."""
    path = paper.results / "claims.json"
    if not path.exists():
        return "not run yet"
    holds = [claim["holds"] for claim in json.loads(path.read_text())["claims"]]
    held, failed, reported = holds.count(True), holds.count(False), holds.count(None)
    parts = [f"{held} {'holds' if held == 1 else 'hold'}", f"{failed} {'does' if failed == 1 else 'do'} not"]
    return ", ".join(parts + ([f"{reported} reported"] if reported else []))


def papers_table(root: Path) -> str:
    """One row per paper: what it does, the command that does it, how its claims fare."""
    lines = [
        "| package | paper | what it does | one command | claims re-tested here |",
        "|---|---|---|---|---|",
    ]
    for paper in papers(root):
        link = f"[`{paper.name}`](packages/{paper.name}/README.md)"
        title = f"[{paper.about.get('title', '')}]({paper.about.get('url', '')})"
        command = f"`uv run --package {paper.name} {paper.verb}`"
        does = paper.project.get("description", "")
        lines.append(f"| {link} | {title} | {does} | {command} | {score(paper)} |")
    return "\n".join(lines)


def rendered(root: Path = ROOT) -> Iterator[tuple[Path, str]]:
    """Every README with its generated parts as the results demand them."""
    top = root / "README.md"
    yield top, replace(top.read_text(), "papers", papers_table(root))
    for paper in papers(root):
        readme = paper.folder / "README.md"
        if not readme.exists():
            continue
        text = readme.read_text()
        claims, bench = paper.results / "claims.json", paper.results / "bench.json"
        if claims.exists():
            text = replace(text, "claims", render_table(json.loads(claims.read_text())))
        if bench.exists():
            text = replace(text, "bench", bench_table(json.loads(bench.read_text())["groups"]))
        yield readme, text


def stale(root: Path = ROOT) -> list[Path]:
    """READMEs whose generated parts differ from the results."""
    return [path for path, text in rendered(root) if path.read_text() != text]


def main() -> None:
    """Rewrite every README that is stale."""
    for path, text in list(rendered()):
        if path.read_text() != text:
            write_text(path, text)
            print(f"updated {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
