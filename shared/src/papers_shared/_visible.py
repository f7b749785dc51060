"""Text that may come from anywhere, made safe to print."""

from __future__ import annotations

import re

# C0 and C1 controls, line and paragraph separators, and what turns the direction of writing around.
_ACTING = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    """Write control characters and marks that turn the writing around as escapes: a name must not act."""
    return _ACTING.sub(lambda found: found.group().encode("unicode_escape").decode(), text)
