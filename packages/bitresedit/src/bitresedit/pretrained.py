"""Networks that transformers reads from a folder, and only whole ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bitresedit.errors import CheckpointError


def whole_model(kind: Any, name: str | Path, what: str, **options: Any) -> Any:
    """Read a network with transformers and refuse one that the folder lacks weights of.

    transformers fills missing weights with random numbers and goes on; a metric or an edit from them would look like
    any other.

    Parameters
    ----------
    kind
        Class of transformers, for example ``CLIPModel``.
    name
        Folder or, for a remote model, its name.
    what
        What the network is called in a message.
    **options
        For ``from_pretrained``.

    Raises
    ------
    CheckpointError
        If there is no such network, or weights are missing or of another shape.
    """
    try:
        model, found = kind.from_pretrained(str(name), output_loading_info=True, **options)
    except (OSError, ValueError, RuntimeError) as error:
        raise CheckpointError(f"no {what} in {name}: {str(error).splitlines()[0]}") from error
    # A shared embedding is stored once and tied.
    lacking = sorted(str(key) for key in found["missing_keys"] if not str(key).endswith("embed_tokens.weight"))
    if lacking:
        raise CheckpointError(
            f"no {what} in {name}: {len(lacking)} weights are missing, such as {', '.join(lacking[:3])}",
            "it holds another network",
        )
    return model
