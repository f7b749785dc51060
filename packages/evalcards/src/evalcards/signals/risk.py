"""Which risks a benchmark speaks to: its card's ``possible_risks`` mapped to a short list of domains.

The domains are ours; each lists words by which free text is recognised and the names under which the IBM Risk Atlas
files the same thing. A risk that fits no domain is kept as "other", never dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

RISK_DOMAINS: dict[str, tuple[str, ...]] = {
    "bias and fairness": (
        "bias", "fairness", "discriminat", "stereotyp", "decision bias", "output bias", "data bias",
        "unrepresentative data", "exclusion",
    ),
    "toxicity and harmful content": (
        "toxic", "hate", "harmful output", "offensive", "abuse", "spreading toxicity", "harmful content", "violence",
    ),
    "misinformation": (
        "misinformation", "disinformation", "hallucinat", "factual", "spreading disinformation", "untruthful",
        "incomplete advice", "over- or under-reliance", "reliance",
    ),
    "privacy": (
        "privacy", "personal information", "personal data", "reidentification", "membership inference",
        "attribute inference", "exposing personal information", "memoriz", "memoris", "anonym", "data leakage",
    ),
    "cyber security and misuse": (
        "cyber", "malware", "jailbreak", "prompt injection", "prompt leaking", "evasion attack", "extraction attack",
        "data poisoning", "dangerous use", "nonconsensual use", "misuse", "weapon", "cbrn", "improper usage", "hacking",
        "prompt priming", "harmful code", "tokens attack", "instructions attack", "interactions attack",
        "unauthorized use",
    ),
    "legal and intellectual property": (
        "copyright", "intellectual property", "legal", "licen", "confidential", "revealing confidential information",
        "usage rights", "plagiarism", "usage restrictions", "acquisition restrictions", "transfer restrictions",
        "ip information", "ip/", "ownership",
    ),
    "robustness and reliability": (
        "robust", "reliab", "distribution shift", "poor model accuracy", "over-fitting", "overfitting", "contaminat",
        "data contamination", "brittle", "lack of domain data", "unreliable", "data curation", "retraining",
        "temporal gap", "risk testing", "testing diversity", "usage definition", "reproducib",
    ),
    "transparency": (
        "transparen", "explain", "unexplainable output", "untraceable attribution", "lack of system transparency",
        "inaccessible training data", "uncertain data provenance", "interpretab", "non-disclosure",
    ),
    "autonomy and agents": (
        "agent", "autonom", "loss of control", "tool use", "misalign", "goal misalignment", "scheming", "sandbagging",
        "deception", "redundant actions", "trust mismatch", "mitigation and maintenance",
    ),
    "society and environment": (
        "job", "labor", "labour", "environment", "energy", "human exploitation", "impact on", "societ", "education",
        "carbon",
    ),
}  # fmt: skip
"""Domain to the words, and IBM Risk Atlas names, that belong to it; a word matches at the beginning of a word."""

OTHER = "other"
_PATTERNS = {
    domain: re.compile("|".join(rf"(?<![a-z]){re.escape(word)}" for word in words))
    for domain, words in RISK_DOMAINS.items()
}


def _texts(risks: Any) -> Iterable[str]:
    if isinstance(risks, str):
        yield risks
    elif isinstance(risks, Mapping):
        named = risks.get("category") or risks.get("name") or risks.get("risk")
        if isinstance(named, str):
            yield named
        else:
            for value in risks.values():
                yield from _texts(value)
    elif isinstance(risks, (list, tuple)):
        for item in risks:
            yield from _texts(item)


def domains_of(text: str) -> tuple[str, ...]:
    """Return the domains that one risk's name or description belongs to, or ``("other",)``."""
    lower = text.lower()
    found = tuple(domain for domain, pattern in _PATTERNS.items() if pattern.search(lower))
    return found or (OTHER,)


def risk_domains(card: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Return the risk domains of a benchmark, in the order of `RISK_DOMAINS`; empty if its card names no risk.

    Parameters
    ----------
    card
        A benchmark card. ``possible_risks`` may be a text, a list of texts, or a list of mappings with ``category`` or
        ``name``.
    """
    if not isinstance(card, Mapping):
        return ()
    found = {domain for text in _texts(card.get("possible_risks")) if text.strip() for domain in domains_of(text)}
    return tuple(domain for domain in (*RISK_DOMAINS, OTHER) if domain in found)
