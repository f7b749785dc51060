"""One row seen as evidence for the slots: where harnesses and aggregators put what they disclose.

Nothing is made up on the way: EEE's own word for "not available", the version ``unknown``, is no disclosure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evalcards.signals.slots import disclosed

_NOT_AVAILABLE = {"unknown", "not available", "n/a"}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _stated(value: Any) -> Any:
    return None if isinstance(value, str) and value.strip().lower() in _NOT_AVAILABLE else value


def evidence_of(result: Mapping[str, Any], log: Mapping[str, Any]) -> dict[str, Any]:
    """Build the evidence object of one EEE result for `evalcards.signals.reproducibility_slots`.

    Parameters
    ----------
    result
        One entry of ``evaluation_results``.
    log
        The log it stands in.

    Returns
    -------
    dict
        ``generation_args``, ``generation_config``, ``protocol``, ``limits``, ``agent``, ``score``, ``row``, ``model``.
    """
    config = _mapping(result.get("generation_config"))
    arguments = _mapping(config.get("generation_args"))
    details = _mapping(config.get("additional_details"))
    # EEE's converters write the shell {"available_tools": []} for every run; it says nothing of an agent.
    agentic = {key: value for key, value in _mapping(arguments.get("agentic_eval_config")).items() if disclosed(value)}
    source = _mapping(result.get("source_data"))
    uncertainty = _mapping(_mapping(result.get("score_details")).get("uncertainty"))
    library = _mapping(log.get("eval_library"))
    metric_details = _mapping(_mapping(result.get("metric_config")).get("additional_details"))
    return {
        "generation_args": arguments,
        "generation_config": config,
        "protocol": {
            **_mapping(result.get("protocol")),
            **{key: details[key] for key in _PROTOCOL_KEYS if key in details},
        },
        "limits": {**_mapping(arguments.get("eval_limits")), **_mapping(details.get("eval_limits"))},
        "agent": {
            "eval_plan": arguments.get("eval_plan") if agentic else None,
            "agentic_eval_config": agentic,
        },
        "score": {
            "sample_size": uncertainty.get("num_samples") or source.get("samples_number") or details.get("n_samples")
        },
        "row": {
            "eval_library": _stated(library.get("name")),
            "eval_library_version": _stated(library.get("version")),
            "split": source.get("hf_split") or metric_details.get("split"),
            "scoring_mode": result.get("scoring_mode") or details.get("scoring_mode"),
            "attempts": arguments.get("max_attempts"),
            "epochs": details.get("epochs"),
        },
        "model": _mapping(log.get("model_info")),
    }


_PROTOCOL_KEYS = (
    "reasoning_effort", "reasoning_tokens", "token_limit", "scaffold", "compaction", "harness_version",
    "n_tasks", "split", "attempts", "epochs",
)  # fmt: skip
