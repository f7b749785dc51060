"""What tests of the command line share."""

from __future__ import annotations

from papers_shared.images import open_image

SOURCE = "a large red metal ball on grass under a clear sky"
TARGET = "a large blue glass cube on grass under a clear sky"
PROMPTS = ("--source", SOURCE, "--target", TARGET)
BOX = ("--mask", "4,4,20,20")


def opened(path):
    """Read a picture as it is, closing its file."""
    return open_image(path, mode=None)


def failed(ran, *parts):
    """Assert exit 2, one line on stderr that starts with error:, no traceback, and say that it names the parts."""
    assert ran.code == 2, ran.err
    # Beside warnings, transformers shows its own progress while it reads weights.
    lines = [line for line in ran.err.splitlines() if line and not line.startswith(("warning:", "Loading weights:"))]
    assert len(lines) == 1, ran.err
    assert lines[0].startswith("error: ")
    for part in parts:
        assert part in lines[0]
    return True
