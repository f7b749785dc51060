"""Signal 1 by slots: decisions that somebody who runs it again must pin down, each met by any of several fields.

A decision that a run does not have is not counted against it: nothing is sampled where likelihoods are compared, so
temperature and length do not apply there. That a run is of this kind, or reasons, or is agentic, must be said by the
run; it is never guessed from the benchmark's name. A slot whose applicability nobody has said leaves the denominator
unless it is disclosed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

State = Literal["disclosed", "missing", "not_applicable", "unknown"]

AD = "generation_config.additional_details"
SLOTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "decoding": (
        "not log-prob",
        (
            "generation_args.temperature", "generation_args.top_p", "generation_args.top_k",
            "protocol.temperature", "protocol.top_p", "protocol.top_k", f"{AD}.temperature",
        ),
    ),
    "reasoning_budget": (
        "reasoning",
        ("protocol.reasoning_effort", "protocol.reasoning_tokens", "generation_args.reasoning", f"{AD}.effort"),
    ),
    "length": (
        "not log-prob",
        ("generation_args.max_tokens", "protocol.token_limit", "limits.token_limit", "limits.message_limit"),
    ),
    "harness": (
        "always",
        ("row.eval_library", "protocol.scaffold", "agent.eval_plan", f"{AD}.harness", f"{AD}.lm_eval_task"),
    ),
    "harness_pin": ("always", ("row.eval_library_version", "protocol.harness_version", f"{AD}.lm_eval_task")),
    "context_handling": (
        "agentic",
        ("protocol.compaction", "limits.compaction", "limits.truncation"),
    ),
    "test_set": (
        "always",
        (
            "score.sample_size", "row.n_tasks", "row.split", "protocol.n_tasks", "protocol.split",
            f"{AD}.n_samples", f"{AD}.subset",
        ),
    ),
    "attempts": (
        "agentic",
        (
            "row.attempts", "row.epochs", "protocol.attempts", "protocol.epochs", "limits.attempts", "limits.epochs",
            f"{AD}.repeats",
        ),
    ),
}  # fmt: skip
"""Slot to (when it applies, the paths into the evidence any of which discloses it)."""

_SPLIT = {
    slot: (rule, [(path.rpartition(".")[0], path.rpartition(".")[2]) for path in paths])
    for slot, (rule, paths) in SLOTS.items()
}
_SPACES = tuple({name: None for _, paths in _SPLIT.values() for name, _ in paths})
_LOG_PROB_TYPES = {"multiple_choice", "loglikelihood", "loglikelihood_rolling"}
_NEGATIVE = {"false", "none", "off", "no", "disabled"}


class SlotReport(NamedTuple):
    """What one run discloses.

    Attributes
    ----------
    slots : dict
        Slot to ``disclosed``, ``missing``, ``not_applicable`` or ``unknown``.
    disclosed : int
        The numerator.
    applicable : int
        The denominator; both are shown, because it varies between runs.
    """

    slots: dict[str, State]
    disclosed: int
    applicable: int


def disclosed(value: Any) -> bool:
    """Tell whether a value says something: not null and not an empty string, list or mapping; 0 and false do."""
    if value is None:
        return False
    if isinstance(value, str):
        return bool(value.strip())
    return len(value) > 0 if isinstance(value, (list, tuple, Mapping)) else True


def _affirmative(value: Any) -> bool:
    """Tell whether a value says that a thing happened; ``none`` and ``off`` disclose that it did not."""
    if not disclosed(value) or value is False:
        return False
    return not (isinstance(value, str) and value.strip().lower() in _NEGATIVE)


def _space(evidence: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return one namespace of the evidence, ``generation_config.additional_details`` being one too."""
    value: Any = evidence
    for part in name.split("."):
        value = value.get(part)
        if not isinstance(value, Mapping):
            return {}
    return value


def is_log_prob(evidence: Mapping[str, Any]) -> bool:
    """Tell whether the run says that it compares likelihoods; its own statement goes before the harness's task type."""
    mode = _space(evidence, "row").get("scoring_mode")
    if isinstance(mode, str) and mode.strip().lower() in ("log_prob", "generative"):
        return mode.strip().lower() == "log_prob"
    kind = _space(evidence, AD).get("output_type")
    return isinstance(kind, str) and kind.strip().lower() in _LOG_PROB_TYPES


def is_reasoning_run(evidence: Mapping[str, Any]) -> bool:
    """Tell whether the run affirms that the model reasoned."""
    protocol = _space(evidence, "protocol")
    return (
        _affirmative(protocol.get("reasoning_effort"))
        or _affirmative(protocol.get("reasoning_tokens"))
        or _affirmative(_space(evidence, "generation_args").get("reasoning"))
    )


def is_agentic_run(evidence: Mapping[str, Any]) -> bool:
    """Tell whether the run affirms a scaffold, compaction, a message limit or anything of an agent."""
    protocol = _space(evidence, "protocol")
    return (
        any(_affirmative(value) for value in _space(evidence, "agent").values())
        or _affirmative(protocol.get("scaffold"))
        or _affirmative(protocol.get("compaction"))
        or _affirmative(_space(evidence, "limits").get("message_limit"))
    )


def reproducibility_slots(evidence: Mapping[str, Any]) -> SlotReport:
    """Say for each decision whether a run discloses it, lacks it, or does not have it.

    Parameters
    ----------
    evidence
        Mapping with any of ``generation_args``, ``generation_config``, ``protocol``, ``limits``, ``agent``, ``score``,
        ``row``, ``model``; see `evalcards.evidence.evidence_of`.

    Returns
    -------
    SlotReport
        The score is ``disclosed / applicable``; `SLOTS` says which paths count.

    Notes
    -----
    A run whose scoring mode nobody recorded keeps the slots for decoding and length.
    """
    applies: dict[str, bool | None] = {
        "always": True,
        "not log-prob": not is_log_prob(evidence),
        # Not being said to reason is not being said not to.
        "reasoning": True if is_reasoning_run(evidence) else None,
        "agentic": True if is_agentic_run(evidence) else None,
    }
    spaces = {name: _space(evidence, name) for name in _SPACES}
    states: dict[str, State] = {}
    for slot, (rule, paths) in _SPLIT.items():
        if applies[rule] is False:
            states[slot] = "not_applicable"
        elif any((value := spaces[name].get(key)) is not None and disclosed(value) for name, key in paths):
            states[slot] = "disclosed"
        else:
            states[slot] = "missing" if applies[rule] else "unknown"
    told = sum(state == "disclosed" for state in states.values())
    return SlotReport(states, told, told + sum(state == "missing" for state in states.values()))
