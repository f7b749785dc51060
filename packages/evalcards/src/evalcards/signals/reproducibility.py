r"""Signal 1: whether the settings are there that somebody would need to run this again.

For a row :math:`r` and required fields :math:`F`,

.. math:: G(r) = 1 - \prod_{f \in F} \mathrm{pop}(f, r), \qquad
          \mathrm{pop}(f, r) = 1 \iff f \in \texttt{generation\_args}\ \text{and is not null.}

An empty string counts as populated: somebody said that there is no prompt template.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from papers_shared.errors import InputError

PROFILES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "paper": (("temperature", "max_tokens"), ("eval_plan", "eval_limits")),
    "paper-h1": (("temperature", "max_tokens"), ("eval_plan", "eval_limits", "harness")),
    "spec4": (("temperature", "top_p", "max_tokens", "prompt_template"), ("eval_plan", "eval_limits")),
}
"""Profile to (fields that every row needs, fields that agentic rows need too)."""

REPORTED = tuple(dict.fromkeys(field for base, more in PROFILES.values() for field in (*base, *more)))
"""All fields that some profile asks for."""

BIT = {field: 1 << position for position, field in enumerate(REPORTED)}
"""Field to its bit where a store keeps which fields a row populates."""

_AGENTIC_TASKS = {"agentic", "tool_use", "multi_step_agent"}
_AGENTIC_NAMES = re.compile(
    r"(?:^|[^a-z0-9])(?:swe[-_ ]?bench|tau2?[-_ ]?bench|gaia2?|webarena|visualwebarena|osworld|androidworld|"
    r"terminal[-_ ]?bench|browsecomp|appworld|agentbench|agentdojo|agentharm|theagentcompany|mle[-_ ]?bench|"
    r"paper[-_ ]?bench|cybench|cve[-_ ]?bench|intercode|toolbench|bfcl|workarena|webshop|assistantbench|"
    r"core[-_ ]?bench|sciagentbench|vending[-_ ]?bench|swe[-_ ]?lancer|re[-_ ]?bench)(?:$|[^a-z0-9]|\d)"
)


class Reproducibility(NamedTuple):
    """What is missing from one row.

    Attributes
    ----------
    has_reproducibility_gap : bool
        :math:`G(r) = 1`.
    missing_fields : tuple of str
        In the profile's order.
    required_field_count : int
        :math:`|F|`.
    populated_field_count : int
        How many of them are populated.
    """

    has_reproducibility_gap: bool
    missing_fields: tuple[str, ...]
    required_field_count: int
    populated_field_count: int


def required_fields(agentic: bool, profile: str = "paper") -> tuple[str, ...]:
    """Return the fields that a row must report, in order.

    Raises
    ------
    InputError
        There is no such profile.
    """
    if profile not in PROFILES:
        raise InputError(
            f"no reproducibility profile {profile!r} of required fields", hint=f"choose one of {', '.join(PROFILES)}"
        )
    base, more = PROFILES[profile]
    return (*base, *more) if agentic else base


def populated(generation_args: Mapping[str, Any] | None, field: str) -> bool:
    """Tell whether a field is there and not null; zero, false and the empty string are there."""
    return isinstance(generation_args, Mapping) and generation_args.get(field) is not None


def reproducibility(
    generation_args: Mapping[str, Any] | None, agentic: bool, profile: str = "paper"
) -> Reproducibility:
    """List the required settings that a row does not report.

    Parameters
    ----------
    generation_args
        ``generation_config.generation_args`` of the row; None where there is none.
    agentic
        Whether the row is from an agentic evaluation, see `is_agentic`.
    profile
        ``paper``, ``paper-h1`` or ``spec4``; the fourth one, ``slots``, is `reproducibility_slots`.

    Returns
    -------
    Reproducibility

    Raises
    ------
    InputError
        There is no such profile.

    References
    ----------
    arXiv 2606.09809, signal "reproducibility gap", version 1.0.
    """
    required = required_fields(agentic, profile)
    missing = tuple(field for field in required if not populated(generation_args, field))
    return Reproducibility(bool(missing), missing, len(required), len(required) - len(missing))


def agentic_name(benchmark: str | None) -> bool:
    """Tell whether a benchmark's name is one of the known agentic ones."""
    return bool(benchmark) and _AGENTIC_NAMES.search(str(benchmark).lower()) is not None


def agentic_card(card: Mapping[str, Any] | None) -> bool:
    """Tell whether a benchmark card lists a task agentic, tool_use or multi_step_agent."""
    purpose = card.get("purpose_and_intended_users") if isinstance(card, Mapping) else None
    tasks = purpose.get("tasks") if isinstance(purpose, Mapping) else None
    listed = [tasks] if isinstance(tasks, str) else tasks if isinstance(tasks, list) else []
    return any(isinstance(task, str) and task.strip().lower() in _AGENTIC_TASKS for task in listed)


def is_agentic(
    benchmark: str | None, card: Mapping[str, Any] | None = None, generation_args: Mapping[str, Any] | None = None
) -> bool:
    """Tell whether a row is agentic: by its benchmark's card, its own agentic settings, or the benchmark's name."""
    return agentic_card(card) or populated(generation_args, "agentic_eval_config") or agentic_name(benchmark)
