"""One request, one key: the canonical form of messages and options; and pictures inside messages."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
from pathlib import Path
from typing import Any

from papers_shared.chat.protocol import Request
from papers_shared.errors import InputError

_FORMAT = 1  # changes when the meaning of a key changes, so that old caches are not misread
_SIGNATURES = {
    b"\x89PNG": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
    b"RIFF": "image/webp",
}


def request_key(identity: str, request: Request) -> str:
    """Return the SHA-256 (hex) that names a request to one model.

    Equal for requests that mean the same: the order of keys, ``0`` against ``0.0``, and options that are None do
    not matter; any other difference does.
    """
    parts = [_FORMAT, identity, canonical(request.messages), canonical(request.options), request.sample]
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


def canonical(value: Any) -> Any:
    """Return JSON with whole floats as integers and long data URLs replaced by their media type and SHA-256."""
    if isinstance(value, dict):
        return {name: canonical(item) for name, item in value.items()}
    if isinstance(value, list):
        return [canonical(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and value.startswith("data:") and len(value) > 200:
        return f"{value.partition(',')[0]},sha256={hashlib.sha256(value.encode()).hexdigest()}"
    return value


def image_part(image: Any) -> dict[str, Any]:
    """Return a picture as a part of a message's content, as a base64 data URL.

    Parameters
    ----------
    image
        A file (str or path) or its bytes, sent as they are if PNG, JPEG, GIF or WebP; a PIL image or array (see
        `papers_shared.images.to_image`) is sent as PNG, without loss.

    Raises
    ------
    InputError
        The file cannot be read or is none of the four formats.

    Examples
    --------
    >>> model.chat([{"role": "user", "content": [{"type": "text", "text": "What is this?"}, image_part("cat.png")]}])
    """
    name = "image"
    if isinstance(image, (str, os.PathLike)):
        name = os.fspath(image)
        try:
            image = Path(name).read_bytes()
        except OSError as error:
            raise InputError(f"cannot read {name}: {(error.strerror or str(error)).lower()}") from error
    if not isinstance(image, bytes):
        from papers_shared.images import to_image

        buffer = io.BytesIO()
        to_image(image).save(buffer, "PNG")
        image = buffer.getvalue()
    media = next((media for start, media in _SIGNATURES.items() if image.startswith(start)), None)
    if media is None:
        raise InputError(f"{name}: not a PNG, JPEG, GIF or WebP picture", hint="open it with papers_shared.images")
    return {"type": "image_url", "image_url": {"url": f"data:{media};base64,{base64.b64encode(image).decode()}"}}
