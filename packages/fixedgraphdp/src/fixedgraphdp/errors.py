"""What can go wrong, by name."""

from __future__ import annotations

from papers_shared.errors import InputError


class BudgetError(InputError):
    """No noise meets the privacy budget asked for, or a run would spend more than it has."""


class InfeasibleError(InputError):
    """Nothing is left to train on: no example fits the contribution bound."""


class PrivacyViolation(RuntimeError):
    """A batch holds an example outside the bounded set, so the reported epsilon would be false."""
