"""Tables for people, on a terminal or in a file."""

from __future__ import annotations

import io
import numbers
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from papers_shared._visible import visible


def number(value: Any) -> str:
    """Format one cell: four significant digits, integers whole, None as a dash, booleans as yes or no, text inert."""
    if value is None:
        return "-"
    if isinstance(value, bool) or type(value).__name__ in ("bool_", "bool"):
        return "yes" if value else "no"
    if isinstance(value, numbers.Integral):
        return str(int(value))
    if isinstance(value, numbers.Real):
        return significant(float(value))
    return visible(str(value))


def significant(value: float, digits: int = 4) -> str:
    """Format to ``digits`` significant digits without needless exponents: ``0.8123``, ``12350``, ``1.2e-07``."""
    if value != value or value in (float("inf"), float("-inf")):
        return str(value)
    if value == 0:
        return "0"
    text = f"{value:.{digits}g}"
    if "e" in text and 1e-4 <= abs(value) < 1e7:
        text = f"{float(text):.0f}" if abs(value) >= 1 else f"{float(text):.{digits + 4}f}".rstrip("0")
    return text


def render(
    rows: Sequence[Mapping[str, Any] | Sequence[Any]], columns: Sequence[str] | None = None, *, title: str | None = None
) -> str:
    """Lay rows out in columns; wraps to the terminal's width, never where there is no terminal."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    if columns is None:
        columns = list(dict.fromkeys(key for row in rows for key in row))
    cells = [[row.get(name) for name in columns] if isinstance(row, Mapping) else list(row) for row in rows]
    layout = Table(
        box=box.SIMPLE_HEAD,
        title=None if title is None else visible(title),
        title_justify="left",
        pad_edge=False,
        show_edge=False,
    )
    for position, name in enumerate(columns):
        numeric = [row[position] for row in cells if row[position] is not None]
        right = bool(numeric) and all(
            isinstance(value, numbers.Real) and not isinstance(value, bool) for value in numeric
        )
        layout.add_column(Text(visible(str(name))), justify="right" if right else "left", overflow="fold")
    for row in cells:
        layout.add_row(*(Text(number(value)) for value in row))
    terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if terminal else 10_000
    text = io.StringIO()
    console = Console(file=text, width=width, force_terminal=terminal, highlight=False)
    console.print(layout)
    shown = "\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n"
    try:
        "─".encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        shown = shown.replace("─", "-")
    return shown
