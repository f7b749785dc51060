"""A corpus with planted truth: made-up models and benchmarks whose gaps, divergences and sources are known.

Every triple follows one of the `PATTERNS`, drawn first; the rows are then made so that the pattern's flags hold.
Spreads are stated in thresholds, so that the corpus also holds pairs that are exactly one threshold apart, in binary
fractions that fall on either side of it. Names are invented; any likeness to a model or benchmark in use is an
accident.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from evalcards.schema import BenchmarkCard, EvalLog, read_log
from evalcards.signals.completeness import field_set


class Pattern(NamedTuple):
    """How the rows of one triple relate.

    Attributes
    ----------
    rows
        (organisation: number, None for unnamed, or text for a spelling of 0; setup: number; distance from the first
        score in thresholds).
    variant, cross : bool or None
        The flags that hold; None where the triple is not eligible.
    cross_differs : bool
        Whether the organisations' representative setups differ.
    anomaly : bool
        The second score is a percentage under a proportion's bounds.
    """

    rows: tuple[tuple[int | str | None, int, float], ...]
    variant: bool | None
    cross: bool | None
    cross_differs: bool = False
    anomaly: bool = False


PATTERNS: dict[str, tuple[float, Pattern]] = {
    "single": (0.71, Pattern(((0, 0, 0.0),), None, None)),
    "repeated": (0.03, Pattern(((0, 0, 0.0), (0, 0, 1.8)), None, None)),
    "variant close": (0.05, Pattern(((0, 0, 0.0), (0, 1, 0.6)), False, None)),
    "variant at the threshold": (0.02, Pattern(((0, 0, 0.0), (0, 1, 1.0)), False, None)),
    "variant far": (0.05, Pattern(((0, 0, 0.0), (0, 1, 1.6)), True, None)),
    "three variants": (0.02, Pattern(((0, 0, 0.0), (0, 1, 0.4), (0, 2, 2.0)), True, None)),
    "parties close": (0.03, Pattern(((0, 0, 0.0), (1, 0, 0.6)), None, False)),
    "parties at the threshold": (0.01, Pattern(((0, 0, 0.0), (1, 0, 1.0)), None, False)),
    "parties far, same setup": (0.01, Pattern(((0, 0, 0.0), (1, 0, 1.8)), None, True)),
    "parties far, other setup": (0.02, Pattern(((0, 0, 0.0), (1, 1, 1.8)), True, True, True)),
    "medians agree": (0.01, Pattern(((0, 0, 0.0), (0, 0, 0.2), (0, 1, 3.0), (1, 0, 0.4)), True, False)),
    "lower median": (0.01, Pattern(((0, 0, 0.0), (0, 1, 1.0), (1, 1, 3.0)), True, True, True)),
    "unnamed party": (0.01, Pattern(((0, 0, 0.0), (None, 1, 2.0)), True, None)),
    "one party, two spellings": (0.01, Pattern(((0, 0, 0.0), ("respelled", 0, 2.0)), None, None)),
    "scale anomaly": (0.01, Pattern(((0, 0, 0.0), (0, 1, 0.0)), True, None, anomaly=True)),
}
"""Pattern by name, with its share of the triples."""


class Metric(NamedTuple):
    """A metric of the corpus: unit, bounds, threshold, and the range of first scores."""

    name: str
    unit: str | None
    low: float | str | None
    high: float | str | None
    tau: float
    first: tuple[float, float]
    decimals: int


METRICS: tuple[tuple[float, Metric], ...] = (
    (0.6, Metric("accuracy", "proportion", 0.0, 1.0, 0.05, (0.2, 0.8), 4)),
    (0.25, Metric("accuracy", "percent", 0.0, 100.0, 5.0, (20.0, 80.0), 2)),
    (0.1, Metric("judge score", None, 0.0, 10.0, 0.5, (2.0, 8.0), 3)),
    (0.05, Metric("rating", None, "-Infinity", "Infinity", 0.05, (900.0, 1300.0), 3)),
)
"""Metric with its share of the benchmarks."""

CATEGORIES = ("knowledge", "reasoning", "code", "safety", "multilingual", "long context", "agents")
_FIRST = (
    "Amber", "Basalt", "Cedar", "Delta", "Ember", "Fjord", "Garnet", "Harbor", "Indigo", "Juniper", "Kestrel",
    "Lumen", "Maple", "Nimbus", "Onyx", "Prairie", "Quartz", "Ridge", "Saffron", "Tundra", "Umber", "Vesper",
    "Willow", "Zephyr",
)  # fmt: skip
_BIRDS = (
    "heron", "avocet", "curlew", "dunlin", "egret", "fulmar", "gannet", "hoopoe", "ibis", "jacana", "knot", "lark",
    "merlin", "nuthatch", "oriole", "plover", "quail", "rail", "siskin", "tern", "veery", "wren",
)  # fmt: skip
_TASKS = (
    "Ledger", "Atlas", "Proof", "Ward", "Tongue", "Scroll", "Errand", "Ballad", "Circuit", "Orchard", "Summit",
    "Lantern", "Bridge", "Compass",
)  # fmt: skip
_PLACES = ("Institute", "Lab", "Observatory", "Collective", "Bureau", "Commons")
_SOURCES = (("third_party", 0.62), ("first_party", 0.25), ("other", 0.10), ("collaborative", 0.03))
_DOCUMENTED = 0.03
_CARDED = 0.65


class Truth(NamedTuple):
    """What is planted.

    Attributes
    ----------
    missing : dict
        (evaluation id, index) to the missing fields of profile ``paper``.
    sources : dict
        (evaluation id, index) to the source type.
    groups : dict
        (model, benchmark) to the name of its pattern.
    parties : dict
        (model, benchmark) to the number of named organisations.
    first_only : dict
        (model, benchmark) to whether one organisation, first-party in all rows, reports it.
    completeness : dict
        Benchmark to (number of populated full fields, populated sub-items of ethical considerations).
    """

    missing: dict[tuple[str, int], tuple[str, ...]]
    sources: dict[tuple[str, int], str]
    groups: dict[tuple[str, str], str]
    parties: dict[tuple[str, str], int]
    first_only: dict[tuple[str, str], bool]
    completeness: dict[str, tuple[int, int]]


class Corpus(NamedTuple):
    """Documents, cards and the truth about them."""

    documents: list[dict[str, Any]]
    cards: list[dict[str, Any]]
    truth: Truth

    def logs(self) -> list[EvalLog]:
        """Return the documents as checked logs."""
        return [read_log(document) for document in self.documents]

    def benchmark_cards(self) -> list[BenchmarkCard]:
        """Return the benchmark cards."""
        return [BenchmarkCard.model_validate(card) for card in self.cards]

    @property
    def rows(self) -> int:
        """Number of results."""
        return sum(len(document["evaluation_results"]) for document in self.documents)


def model_names(n: int) -> list[str]:
    """Return ``n`` different invented model ids, a third of them dated."""
    names = []
    for i in range(n):
        developer = f"{_FIRST[i % 24].lower()}-{('ai', 'labs', 'research')[i // 24 % 3]}"
        size = (1, 3, 7, 13, 34, 70)[i // 72 % 6]
        name = f"{_BIRDS[(i * 7) % 22]}-{i // 22 + 1}-{size}b"
        date = f"-2025{1 + i % 12:02d}{1 + i % 28:02d}" if i % 3 == 0 else ""
        names.append(f"{developer}/{name}{date}{'-instruct' if date and i % 2 else ''}")
    return names


def benchmark_names(n: int) -> list[str]:
    """Return ``n`` different invented benchmark names."""
    return [f"{_FIRST[i % 24]} {_TASKS[i // 24 % 14]}" + (f" {i // 336 + 1}" if i >= 336 else "") for i in range(n)]


def _organisation(number: int) -> str:
    return f"{_FIRST[(number * 5 + 3) % 24]} {_PLACES[number % 6]} {number // 24 + 1}"


def _respell(name: str) -> str:
    return "  ".join(name.upper().split(" "))


class _Maker:
    """Draw triples until there are enough rows, and file their results under logs."""

    def __init__(self, models: int, benchmarks: int, rows: int, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.models, self.benchmarks, self.wanted = model_names(models), benchmark_names(benchmarks), rows
        shares = [share for share, _ in METRICS]
        picks = self.random.choice(len(METRICS), benchmarks, p=shares)
        self.metric = [METRICS[i][1] for i in picks]
        self.category = [CATEGORIES[i % len(CATEGORIES)] for i in range(benchmarks)]
        self.truth = Truth({}, {}, {}, {}, {}, {})
        self.relations: dict[tuple[int, int], str] = {}
        self.open: dict[tuple[str, str, str], dict[str, Any]] = {}
        self.documents: list[dict[str, Any]] = []

    def make(self) -> Corpus:
        """Make cards and logs."""
        cards = self._cards()
        names, shares = zip(*((name, share) for name, (share, _) in PATTERNS.items()), strict=True)
        made = 0
        pairs = self.random.permutation(len(self.models) * len(self.benchmarks))
        chances = np.array(shares) / sum(shares)
        drawn = self.random.choice(len(names), len(pairs), p=chances)
        for pair, which in zip(pairs, drawn, strict=True):
            name = names[int(which)]
            if made + len(PATTERNS[name][1].rows) > self.wanted:
                name = "single"
            model, benchmark = divmod(int(pair), len(self.benchmarks))
            if PATTERNS[name][1].anomaly and self.metric[benchmark].unit != "proportion":
                name = "variant far"
            made += self._triple(model, benchmark, name)
            if made >= self.wanted:
                break
        return Corpus(self.documents, cards, self.truth)

    def _cards(self) -> list[dict[str, Any]]:
        """Write a card for most benchmarks, with a known number of its fields."""
        full = [f.path.split(".")[1:] for f in field_set() if f.coverage == "full"]
        ethics = ("privacy_and_anonymity", "data_licensing", "consent_procedures", "compliance_with_regulations")
        risks = ("Output bias", "Spreading toxicity", "Hallucination", "Exposing personal information", "Dangerous use",
                 "Copyright infringement", "Distribution shift", "Unexplainable output")  # fmt: skip
        cards = []
        for number, name in enumerate(self.benchmarks):
            agentic = self.category[number] == "agents"
            if not agentic and self.random.random() > _CARDED:
                self.truth.completeness[name] = (0, 0)
                continue
            card: dict[str, Any] = {"benchmark_details": {"name": name}, "category": self.category[number]}
            keep = {i for i in range(len(full)) if self.random.random() < 0.6}
            for i, path in enumerate(full):
                if path[-1] == "name" or (i not in keep and not (agentic and path[-1] == "tasks")):
                    continue
                value: Any = f"{path[-1].replace('_', ' ')} of {name}, invented for this corpus"
                if path[-1] == "tasks":
                    value = ["agentic" if agentic else "question answering"]
                if path == ["possible_risks"]:
                    chosen = self.random.choice(len(risks), 1 + number % 3, replace=False)
                    card["possible_risks"] = [{"category": risks[int(k)]} for k in chosen]
                    continue
                card.setdefault(path[0], {})[path[1]] = value
            stated = int(self.random.integers(0, 5))
            if stated:
                card["ethical_and_legal_considerations"] = dict.fromkeys(ethics[:stated], "stated")
            populated = 1 + sum(path[-1] != "name" for i, path in enumerate(full) if i in keep)
            populated += agentic and full.index(["purpose_and_intended_users", "tasks"]) not in keep
            self.truth.completeness[name] = (populated, stated)
            cards.append(card)
        return cards

    def _triple(self, model: int, benchmark: int, name: str) -> int:
        pattern = PATTERNS[name][1]
        metric = self.metric[benchmark]
        agentic = self.category[benchmark] == "agents"
        first = round(float(self.random.uniform(*metric.first)), 2)
        base, missing = self._settings(agentic)
        organisation = (7 * model + int(self.random.integers(0, 4))) % 40
        kind = self._relation(model, organisation)
        key = (self.models[model], self.benchmarks[benchmark])
        kinds = []
        for position, (party, setup, distance) in enumerate(pattern.rows):
            who = "" if party is None else _organisation(organisation + (party if isinstance(party, int) else 0))
            if party == "respelled":
                who = _respell(who)
            mine = kind if party in (0, "respelled") else "third_party"
            kinds.append(mine)
            score = round(first + distance * metric.tau, metric.decimals)
            if pattern.anomaly and position:
                score = round(score * 100, 2)
            place = self._file(model, who, mine, self._result(benchmark, score, {**base, **_variant(setup)}))
            self.truth.missing[place] = missing
            self.truth.sources[place] = "unspecified" if mine == "other" else mine
        named = {party for party, _, _ in pattern.rows if isinstance(party, int)}
        self.truth.groups[key] = name
        self.truth.parties[key] = len(named)
        self.truth.first_only[key] = len(named) == 1 and set(kinds) == {"first_party"}
        return len(pattern.rows)

    def _relation(self, model: int, organisation: int) -> str:
        """Return how an organisation relates to a model, the same in all its results."""
        key = (model, organisation)
        if key not in self.relations:
            self.relations[key] = str(self.random.choice([s for s, _ in _SOURCES], p=[p for _, p in _SOURCES]))
        return self.relations[key]

    def _settings(self, agentic: bool) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Draw the settings that a triple's rows share, and what is missing from them."""
        needed = ["temperature", "max_tokens"] + (["eval_plan", "eval_limits"] if agentic else [])
        values = {
            "temperature": float(self.random.choice([0.0, 0.2, 0.7, 1.0])),
            "max_tokens": int(self.random.choice([256, 1024, 4096])),
            "eval_plan": {"name": "plan", "steps": ["generate"]},
            "eval_limits": {"message_limit": 50},
        }
        if self.random.random() < _DOCUMENTED:
            missing: list[str] = []
        else:
            count = int(self.random.integers(1, len(needed) + 1))
            missing = sorted(self.random.choice(needed, count, replace=False).tolist(), key=needed.index)
        arguments: dict[str, Any] = {field: values[field] for field in needed if field not in missing}
        # Null is as missing as absent.
        if missing and self.random.random() < 0.2:
            arguments[missing[0]] = None
        return arguments, tuple(missing)

    def _result(self, benchmark: int, score: float, arguments: dict[str, Any]) -> dict[str, Any]:
        metric = self.metric[benchmark]
        config: dict[str, Any] = {"metric_id": metric.name, "lower_is_better": False, "score_type": "continuous"}
        if metric.unit:
            config["metric_unit"] = metric.unit
        config |= {"min_score": metric.low, "max_score": metric.high}
        details: dict[str, Any] = {"score": score}
        if self.random.random() < 0.3 and metric.unit:
            details["uncertainty"] = {"num_samples": int(self.random.choice([200, 500, 1000, 5000]))}
        return {
            "evaluation_name": self.benchmarks[benchmark],
            "source_data": {"dataset_name": self.benchmarks[benchmark], "source_type": "other"},
            "metric_config": config,
            "score_details": details,
            "generation_config": {"generation_args": arguments},
        }

    def _file(self, model: int, who: str, kind: str, result: dict[str, Any]) -> tuple[str, int]:
        """Put a result into an open log of the model and source; a log holds eight results at most."""
        key = (self.models[model], who, kind)
        document: dict[str, Any] | None = self.open.get(key)
        if document is None or len(document["evaluation_results"]) >= 8:
            number = len(self.documents)
            name = self.models[model]
            document = {
                "schema_version": "0.3.0",
                "evaluation_id": f"made-up/{number}",
                "retrieved_timestamp": str(1_750_000_000 + number),
                "source_metadata": {
                    "source_type": "documentation",
                    "source_organization_name": who,
                    "evaluator_relationship": kind,
                },
                "model_info": {
                    "name": name.partition("/")[2],
                    "id": name,
                    "developer": name.partition("/")[0],
                    "additional_details": {"deployment_type": "unknown", "model_availability": "unknown"},
                },
                "eval_library": {"name": "made-up", "version": "1.0" if number % 2 else "unknown"},
                "evaluation_results": [],
            }
            self.open[key] = document
            self.documents.append(document)
        document["evaluation_results"].append(result)
        return document["evaluation_id"], len(document["evaluation_results"]) - 1


def _variant(setup: int) -> dict[str, Any]:
    """Return the setting by which setups of one triple differ."""
    return {"prompt_template": ("", "Question: {q}", "Think, then answer: {q}")[setup]}


def generate(models: int = 400, benchmarks: int = 60, rows: int = 9000, seed: int = 0) -> Corpus:
    """Make a corpus with planted truth.

    Parameters
    ----------
    models, benchmarks, rows
        Its size; at most one triple per model and benchmark.
    seed
        Decides everything.

    Returns
    -------
    Corpus

    Examples
    --------
    >>> corpus = generate(seed=1)
    >>> corpus.rows
    9000
    """
    corpus = _Maker(models, benchmarks, rows, seed).make()
    if corpus.rows != rows:
        raise ValueError(f"{models} models and {benchmarks} benchmarks hold only {corpus.rows} rows, not {rows}")
    return corpus


def texts(documents: Sequence[dict[str, Any]]) -> list[str]:
    """Return documents as the JSON text of one file each."""
    return [json.dumps(document) for document in documents]
