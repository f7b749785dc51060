"""What can be wrong with a user's input; every one of these ends a command with exit code 2."""

from __future__ import annotations

from papers_shared.errors import InputError


class BitResEditError(InputError):
    """Something the user can put right: ``BitResEditError(message, hint=None)``."""


class MaskError(BitResEditError):
    """The mask selects nothing, cannot be read, or cannot be placed on the image."""


class PromptError(BitResEditError):
    """A prompt is empty, or its brackets do not pair."""


class VocabularyError(PromptError):
    """A word that the backbone's text encoder was never trained on."""


class CheckpointError(BitResEditError):
    """A checkpoint is missing, damaged, or belongs to another model."""
