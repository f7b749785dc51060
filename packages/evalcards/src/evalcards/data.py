"""The embedded default (made-up corpus, 40 real rows, 16 benchmark cards) and readers of cards and models."""

from __future__ import annotations

import json
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from evalcards import strict_json
from evalcards.errors import SchemaError
from evalcards.generator import Corpus, generate
from evalcards.importers import ImportResult, inspect, lm_eval
from evalcards.schema import BenchmarkCard, ModelMeta

ORGANISATION = "evalcards authors"
"""Who ran the real rows."""


def _asset(name: str) -> Any:
    return json.loads(files("evalcards").joinpath(f"assets/{name}").read_text(encoding="utf-8"))


def benchmark_cards() -> list[BenchmarkCard]:
    """Return the 16 benchmark cards that come with the package."""
    return [BenchmarkCard.model_validate(card) for card in _asset("benchmark_cards.json")]


def registered_models() -> list[ModelMeta]:
    """Return the models registered with the package."""
    return [ModelMeta.model_validate(model) for model in _asset("models.json")]


def real_rows() -> ImportResult:
    """Return the 40 real rows: lm-eval and Inspect on SmolLM2-135M-Instruct, read from their own files."""
    from evalcards.importers import Options

    options = Options(organisation=ORGANISATION, relationship="third_party")
    result = ImportResult()
    with as_file(files("evalcards").joinpath("assets/real")) as folder:
        result.extend(lm_eval(folder, options))
        # Inspect's reader takes any .json for one of its own logs; only the archives are.
        for path in sorted(folder.glob("*.eval")):
            result.extend(inspect(path, options))
    return result


def made_up(seed: int = 0) -> Corpus:
    """Return the made-up corpus: 400 models, 60 benchmarks, 9,000 rows, every signal's truth known."""
    return generate(400, 60, 9000, seed)


def read_cards(path: str | Path) -> list[BenchmarkCard]:
    """Read benchmark cards from a JSON file: one card, or a list.

    Raises
    ------
    SchemaError
        The file holds something else.
    """
    document = strict_json.read(Path(path))
    cards = []
    for number, entry in enumerate(document if isinstance(document, list) else [document]):
        # Auto-BenchmarkCard wraps the card.
        inner = entry.get("benchmark_card", entry) if isinstance(entry, dict) else entry
        try:
            card = BenchmarkCard.model_validate(inner)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"])) or f"card {number}"
            raise SchemaError(str(path), f"{place}: {first['msg']}") from error
        if not str(card.benchmark_details.get("name") or "").strip():
            raise SchemaError(str(path), f"card {number}: benchmark_details.name is missing")
        cards.append(card)
    return cards


def read_models(path: str | Path) -> list[ModelMeta]:
    """Read model metadata from a JSON file: one model, or a list, with ``id`` and ``aliases``.

    Raises
    ------
    SchemaError
        The file holds something else.
    """
    document = strict_json.read(Path(path))
    models = []
    for number, entry in enumerate(document if isinstance(document, list) else [document]):
        try:
            models.append(ModelMeta.model_validate(entry))
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"])) or f"model {number}"
            raise SchemaError(str(path), f"{place}: {first['msg']}") from error
    return models
