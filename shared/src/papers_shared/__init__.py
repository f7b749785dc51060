"""What the papers of this workspace share; import the module you need, for example ``papers_shared.artifacts``."""

from __future__ import annotations

from papers_shared.errors import InputError

__all__ = ["InputError"]
