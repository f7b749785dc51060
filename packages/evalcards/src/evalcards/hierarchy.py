"""Where a result stands: family -> composite -> benchmark -> slice/split -> protocol -> metric.

Two results are of one triple only if all of these agree. The protocol (few-shot count, answer filter, prompting
method) is a part of the path: two protocols under one benchmark name do not join. So is the unit, in the metric: a
proportion and a percentage never meet in one difference. What a log does not state stays empty, it is not filled in.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from evalcards.identity import fold, slug
from evalcards.schema import BenchmarkCard

_SEPARATOR = re.compile(r"\s+-\s+|\s*/\s*|::|:\s+")
NONE = "-"
_PROTOCOL = (
    ("num_fewshot", "{}-shot"),
    ("method", "{}"),
    ("filter", "filter {}"),
    ("chat_template", "chat template {}"),
    ("scaffold", "scaffold {}"),
    ("protocol", "{}"),
)


class Place(NamedTuple):
    """A result's place in the hierarchy, as slugs; the names are what the source wrote."""

    family: str
    composite: str
    benchmark: str
    slice: str
    split: str
    protocol: str
    metric: str
    benchmark_name: str
    slice_name: str
    metric_name: str
    protocol_name: str

    @property
    def path(self) -> str:
        """The metric path without the metric: ``family/composite/benchmark/slice@split/protocol``."""
        return f"{self.family}/{self.composite}/{self.benchmark}/{self.slice}@{self.split}/{self.protocol}"


def tell_apart(lines: Sequence[dict[str, Any]]) -> None:
    """Give each line its ``own_place`` and ``metric_label``, so that no two triples read alike.

    Composite, split and unit are told only where lines of one model, benchmark, slice, protocol and metric differ in
    them; elsewhere they would be noise.

    Parameters
    ----------
    lines
        With ``model_id``, ``path``, ``metric`` (which ends in the unit) and the names; changed in place.
    """
    alike: dict[tuple[Any, ...], list[tuple[dict[str, Any], tuple[str, str, str]]]] = {}
    for line in lines:
        _, composite, _, part, _ = line["path"].split("/")
        hidden = composite, part.rpartition("@")[2], line["metric"].partition(":")[2]
        key = ("model_id", "benchmark_name", "slice_name", "protocol_name", "metric_name")
        alike.setdefault(tuple(line[name] for name in key), []).append((line, hidden))
    for group in alike.values():
        differs = [len(set(column)) > 1 for column in zip(*(hidden for _, hidden in group), strict=True)]
        for line, (composite, split, unit) in group:
            said = [
                "in no suite" if composite == NONE else f"within {composite}",
                "split not reported" if split == NONE else f"split {split}",
            ]
            line["own_place"] = ", ".join(text for text, told in zip(said, differs, strict=False) if told)
            label = f" ({unit or 'unit not reported'})" if differs[2] else ""
            line["metric_label"] = f"{line['metric_name']}{label}"


class BenchmarkIndex:
    """Which names belong to which benchmark, by the aliases of the benchmark cards.

    Parameters
    ----------
    cards
        The benchmark cards.
    """

    def __init__(self, cards: Iterable[BenchmarkCard] = ()) -> None:
        self._known: dict[str, tuple[str, str]] = {}
        for card in cards:
            for name in (card.name, *card.aliases):
                self._known.setdefault(fold(name), (card.name, card.family or card.name))
        self._places: dict[tuple[Any, ...], Place] = {}

    def find(self, name: str) -> tuple[str, str] | None:
        """Return the benchmark's own name and its family, if a card claims the name."""
        return self._known.get(fold(name))

    def _split(self, name: str) -> tuple[str, str, str]:
        """Return family, benchmark and slice of an evaluation's name."""
        if found := self.find(name):
            return found[1], found[0], ""
        for match in _SEPARATOR.finditer(name):
            if found := self.find(name[: match.start()]):
                return found[1], found[0], name[match.end() :].strip()
        # Harness names such as mmlu_abstract_algebra: the longest known beginning that ends at a word.
        for match in reversed(list(re.finditer(r"[_\- ]+", name))):
            if found := self.find(name[: match.start()]):
                return found[1], found[0], name[match.end() :].strip()
        return name, name, ""

    def place(self, result: Mapping[str, Any]) -> Place:
        """Return where an entry of ``evaluation_results`` stands.

        The harness is no part of the path: two harnesses may measure the same thing.
        """
        metric = result["metric_config"]
        details = metric.get("additional_details") or {}
        source = result["source_data"]
        config = (result.get("generation_config") or {}).get("additional_details") or {}
        name = str(result["evaluation_name"])
        measure = metric.get("metric_id") or metric.get("metric_name") or ""
        protocol = tuple(
            pattern.format(value)
            for key, pattern in _PROTOCOL
            if (value := details.get(key, config.get(key))) not in (None, "", "none", "None")
        )
        key = (
            name, measure, metric.get("metric_unit"), protocol, details.get("composite"),
            details.get("slice") or details.get("subset"), details.get("split") or source.get("hf_split"),
            details.get("benchmark"),
        )  # fmt: skip
        if key not in self._places:
            self._places[key] = self._make(key)
        return self._places[key]

    def _make(self, key: tuple[Any, ...]) -> Place:
        name, measure, unit, protocol, composite, part, split, benchmark = key
        family, found, own = self._split(str(benchmark) if benchmark else name)
        piece = " ".join(str(x) for x in dict.fromkeys((own, part)) if x)
        label = "; ".join(protocol)
        unit_name = f":{slug(str(unit))}" if unit else ""
        return Place(
            slug(family),
            slug(str(composite)) if composite else NONE,
            slug(found),
            slug(piece) if piece else NONE,
            slug(str(split)) if split else NONE,
            slug(label) if label else NONE,
            (slug(str(measure)) if measure else "score") + unit_name,
            found,
            piece,
            str(measure) or "score",
            label,
        )
