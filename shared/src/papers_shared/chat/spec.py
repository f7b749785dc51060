"""How a model is named on the command line."""

from __future__ import annotations

import os
from typing import Any

from papers_shared.chat.engine import Chat
from papers_shared.chat.local import local_chat
from papers_shared.chat.openai import openai_chat
from papers_shared.chat.replay import replay
from papers_shared.errors import InputError


def open_chat(
    name: str, *, base_url: str | None = None, cache: str | os.PathLike[str] | None = None, **settings: Any
) -> Chat:
    """Return the model that a command-line option names.

    ============================  =========================================================================
    ``smollm2``                   `local_chat` with the packaged model
    ``gguf:FILE``                 `local_chat` with that file
    ``replay:FILE``               `replay`
    ``URL#MODEL``                 `openai_chat`; ``chat:`` or ``openai:`` may stand before it
    ``openai:MODEL``              `openai_chat` at ``base_url`` or, if None, at ``OPENAI_BASE_URL``
    ============================  =========================================================================

    Parameters
    ----------
    name
        As in the table.
    base_url
        For ``openai:MODEL``.
    cache
        Folder for answers; a replay needs none.
    **settings
        For the function in the table.

    Raises
    ------
    InputError
        The name is none of these, or lacks its model or address; or as the functions in the table.
    """
    if name == "smollm2":
        return local_chat(cache=cache, **settings)
    kind, _, rest = name.partition(":")
    if kind == "gguf" and rest:
        return local_chat(rest, cache=cache, **settings)
    if kind == "replay" and rest:
        return replay(rest, **settings)
    target = rest if kind in ("chat", "openai") else name
    address, _, model = target.rpartition("#")
    if "://" in target:
        if not address or not model:
            raise InputError(f"{name!r} names no model", "write http://localhost:8000/v1#MODEL")
        return openai_chat(address, model, cache=cache, **settings)
    if kind in ("chat", "openai") and rest:
        address = base_url or os.environ.get("OPENAI_BASE_URL", "")
        if not address:
            raise InputError(f"{name!r} names no server", "give its address, or set OPENAI_BASE_URL")
        return openai_chat(address, rest, cache=cache, **settings)
    raise InputError(f"{name!r} names no chat model", "use smollm2, gguf:FILE, replay:FILE, URL#MODEL or openai:MODEL")
