"""The review queue in a terminal: two records side by side, one key for a decision."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from sanctionspairs.review import Item, Queue

KEYS = {"y": "positive", "n": "negative", "u": "unsure"}
HELP = "y same entity · n different · u unsure · s skip · z undo · q quit"


def rows_of(item: Item) -> Iterator[tuple[str, str, str, str]]:
    """Yield property, left values, right values and how they compare: ``same``, ``differ`` or empty."""
    left, right = item.left["properties"], item.right["properties"]
    for name in [*left, *(prop for prop in right if prop not in left)]:
        a, b = left.get(name, []), right.get(name, [])
        mark = "" if not a or not b else "same" if {v.casefold() for v in a} & {v.casefold() for v in b} else "differ"
        yield name, " · ".join(a), " · ".join(b), mark


def show(console: Console, queue: Queue, item: Item, left_to_do: int) -> None:
    """Print a pair, why it was scored as it was, and the keys."""
    harm = queue.harm(item)
    console.print(
        Text(f"\n{left_to_do} to do · probability {item.p:.3f} · expected harm {harm:.2f} wrong pairs", style="bold")
    )
    table = Table(show_lines=False, expand=True)
    table.add_column("", ratio=2, style="dim")
    for record in (item.left, item.right):
        table.add_column(Text(f"{record.get('caption') or record['id']} ({record['schema']})"), ratio=5)
    for name, a, b, mark in rows_of(item):
        style = {"same": "green", "differ": "red"}.get(mark, "")
        table.add_row(name, Text(a, style=style), Text(b, style=style))
    table.add_row("source", *(Text(", ".join(r.get("datasets") or [])) for r in (item.left, item.right)))
    console.print(table)
    if item.tags:
        console.print(Text(f"kind: {', '.join(item.tags)}", style="yellow"))
    strongest = sorted(item.reasons.items(), key=lambda found: -abs(found[1]))[:6]
    if strongest:
        console.print(Text("why: " + ", ".join(f"{name} {value:+.2f}" for name, value in strongest)))
    console.print(Text(HELP, style="dim"))


def read_key() -> str:
    """Read one key press; without a terminal, the first letter of a line; empty at the end of input."""
    if not sys.stdin.isatty():
        line = sys.stdin.readline()
        return line.strip()[:1].lower() or ("?" if line else "")
    try:
        import termios
        import tty
    except ImportError:  # Windows has no termios
        return input().strip()[:1].lower()
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        return sys.stdin.read(1).lower()
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def review(
    queue: Queue, *, user: str | None = None, key: Callable[[], str] = read_key, console: Console | None = None
) -> dict[str, Any]:
    """Go through a queue until it is empty or ``q``; every decision is on disk before the next pair is shown.

    Returns
    -------
    dict
        How many were decided now, taken back, and are left.
    """
    out = console or Console()
    skipped: set[int] = set()
    decided = undone = 0
    while todo := [item for item in queue.pending() if item.number not in skipped]:
        item = todo[0]
        show(out, queue, item, len(todo))
        pressed = key()
        if pressed in ("q", ""):
            break
        if pressed in KEYS:
            queue.decide(item.number, KEYS[pressed], user)
            decided += 1
            out.print(Text(f"→ {KEYS[pressed]}", style="bold cyan"))
        elif pressed == "s":
            skipped.add(item.number)
        elif pressed == "z":
            taken = queue.undo(user)
            undone += taken is not None
            out.print(
                Text("→ nothing to undo" if taken is None else f"→ took back {taken.judgement}", style="bold cyan")
            )
        else:
            out.print(Text(HELP, style="bold"))
    return {"decided": decided, "undone": undone, "left": len(queue.pending())}
