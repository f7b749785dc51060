"""The language-model matcher: asks about pairs, reads strict JSON, keeps every answer, never takes noise for a no."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from papers_shared.chat import ChatModel, Failure, Reply, Request, open_chat
from papers_shared.errors import InputError
from sanctionspairs.errors import LLMParseError, SanctionsPairsError
from sanctionspairs.prompts import Prompt, Registry, example_messages, select_examples, system_prompt
from sanctionspairs.records import NEGATIVE, POSITIVE, Pair
from sanctionspairs.regression import incompatible

CONFIDENCE = {"high": 0.95, "medium": 0.8, "low": 0.6}
"""Probability that stands for a stated confidence where the server gives no log-probabilities."""
UNCERTAIN, ERROR, UNASKED = "uncertain", "error", "unasked"
MAX_TOKENS = 512
_REASONING = re.compile(r"(^|[/:])(o\d|gpt-5|deepseek-reasoner)", re.IGNORECASE)
"""Models whose servers refuse a temperature."""
_BATCH = 200


@dataclass(frozen=True)
class Verdict:
    """One answer.

    Attributes
    ----------
    classification
        ``positive``, ``negative``, ``uncertain``, ``error`` (no readable answer) or ``unasked`` (the money was spent).
    p
        Probability of positive for ranking; NaN without a verdict, 1/2 for uncertain.
    confidence
        As stated: high, medium or low; empty without a verdict.
    reasoning
        The model's words, or what went wrong.
    """

    classification: str
    p: float
    confidence: str = ""
    reasoning: str = ""


def parse_answer(reply: Reply, ternary: bool = False) -> Verdict:
    """Read an answer.

    Raises
    ------
    LLMParseError
        It holds no JSON object with a known classification and confidence.
    """
    try:
        data = reply.json()
    except ValueError as error:
        raise LLMParseError(str(error)) from error
    if not isinstance(data, dict):
        raise LLMParseError(f"the answer is {type(data).__name__}, not an object")
    kind = str(data.get("classification", "")).strip().lower()
    if kind not in (POSITIVE, NEGATIVE, *((UNCERTAIN,) if ternary else ())):
        raise LLMParseError(f"the answer's classification is {data.get('classification')!r}")
    confidence = str(data.get("confidence", "")).strip().lower()
    if confidence not in CONFIDENCE:
        raise LLMParseError(f"the answer's confidence is {data.get('confidence')!r}")
    return Verdict(kind, _probability(reply, kind, confidence), confidence, str(data.get("reasoning", "")))


def _probability(reply: Reply, kind: str, confidence: str) -> float:
    """Return P(positive): from the class word's first token where its alternatives are known, else from confidence."""
    if kind == UNCERTAIN:
        return 0.5
    token = _class_token(reply, kind)
    if token is not None:
        mass = {POSITIVE: 0.0, NEGATIVE: 0.0}
        for word, logprob in token.items():
            start = word.strip().strip('"').lower()
            for name in mass:
                if start and name.startswith(start):
                    mass[name] += math.exp(logprob)
        if sum(mass.values()) > 0:
            return mass[POSITIVE] / sum(mass.values())
    p = CONFIDENCE[confidence]
    return p if kind == POSITIVE else 1 - p


def _class_token(reply: Reply, kind: str) -> dict[str, float] | None:
    """Return the alternatives of the token in which the class word begins."""
    if reply.logprobs is None:
        return None
    text = "".join(item.token for item in reply.logprobs)
    found = re.search(rf'"classification"\s*:\s*"({kind})', text, re.IGNORECASE)
    if found is None:
        return None
    begin, place = found.start(1), 0
    for item in reply.logprobs:
        if place <= begin < place + len(item.token):
            # The token may hold the quote before the word: only its part of the word counts.
            skipped = begin - place
            tops = {**item.top, item.token: item.logprob}
            return {word[skipped:] if word[:skipped] == item.token[:skipped] else word: lp for word, lp in tops.items()}
        place += len(item.token)
    return None


class LLMMatcher:
    """Asks a language model about each pair.

    Parameters
    ----------
    model
        A chat model, or its name: ``openai:NAME``, ``URL#NAME``, ``smollm2``, ``gguf:FILE``, ``hf:FOLDER``.
    base_url
        Server of ``openai:NAME``; the key comes from the environment only.
    framing
        ``conflict`` or ``conservative``.
    shots, selection
        Examples from dev and how they are chosen; `fit` takes them.
    ternary
        Allow ``uncertain``, which goes to review.
    parallel
        Most requests at once.
    cache
        Folder in which each answer is kept as soon as it comes; the same run after a kill asks only what is missing.
    max_cost, prices
        Stop once so many dollars are spent; prices are dollars per million prompt and completion tokens.
    prompt
        A saved prompt, its id or file, instead of framing and examples.
    registry
        Folder of saved prompts.
    seed
        Of the choice of examples.
    """

    trained = True

    def __init__(
        self,
        model: ChatModel | str = "smollm2",
        *,
        base_url: str | None = None,
        framing: str = "conflict",
        shots: int = 0,
        selection: str = "balanced",
        ternary: bool = False,
        parallel: int = 30,
        cache: str | None = None,
        max_cost: float | None = None,
        prices: tuple[float, float] = (0.15, 0.60),
        prompt: Prompt | str | None = None,
        registry: str = "prompts",
        seed: int = 42,
    ) -> None:
        self.model = model if not isinstance(model, str) else open_model(model, base_url, cache, parallel)
        self.framing, self.shots, self.selection, self.ternary = framing, shots, selection, ternary
        self.max_cost, self.prices, self.seed = max_cost, prices, seed
        loaded = Registry(registry).load(prompt) if isinstance(prompt, str) else prompt
        self.prompt = loaded or Prompt("built-in", self.model.model, system_prompt(framing, ternary))
        self.name = (
            f"llm-{self.model.model}" + (f"-{shots}shot" if shots else "") + ("" if loaded is None else "-prompt")
        )
        self.partial = False
        self.trained = not shots or loaded is not None

    def fit(self, pairs: Sequence[Pair]) -> LLMMatcher:
        """Take the few-shot examples from dev; returns itself."""
        if self.shots and not self.trained:
            chosen = select_examples(pairs, self.shots, self.selection, self.seed)
            demonstrations = tuple(message for pair in chosen for message in example_messages(pair))
            self.prompt = Prompt("few-shot", self.model.model, self.prompt.system_prompt, demonstrations=demonstrations)
            self.trained = True
        return self

    def score(self, pairs: Sequence[Pair]) -> Float[np.ndarray, " n"]:
        """Return P(positive) of each pair; NaN for errors and pairs that were not asked."""
        scores = np.array([verdict.p for verdict in self.verdicts(pairs)], dtype=np.float64)
        scores[incompatible(pairs)] = 0.0
        return scores

    def verdicts(self, pairs: Sequence[Pair]) -> list[Verdict]:
        """Return each pair's answer; an unreadable one is asked for once more, then counts as an error.

        Raises
        ------
        ChatError
            The server refuses everything: wrong key, no quota, unknown model.
        """
        if not self.trained:
            raise SanctionsPairsError("few-shot examples are missing", "call fit(dev) first")
        excluded = incompatible(pairs)
        found: dict[int, Verdict] = {}
        todo = [number for number in range(len(pairs)) if not excluded[number]]
        for attempt in (0, 1):
            again: list[int] = []
            while todo:
                size = self._affordable()
                if not size:
                    self.partial = True
                    found |= {number: Verdict(UNASKED, math.nan, reasoning="cost limit reached") for number in todo}
                    break
                batch, todo = todo[:size], todo[size:]
                requests = [self._request(pairs[number], attempt) for number in batch]
                outcomes = self.model.chat_many(requests, progress=f"asking {self.model.model}")
                for number, outcome in zip(batch, outcomes, strict=True):
                    verdict = self._read(outcome)
                    found[number] = verdict
                    if verdict.classification == ERROR and isinstance(outcome, Reply):
                        again.append(number)
            todo = again
        return [
            found.get(number, Verdict(NEGATIVE, 0.0, "high", "schemata exclude each other"))
            for number in range(len(pairs))
        ]

    def _request(self, pair: Pair, attempt: int) -> Request:
        options: dict[str, Any] = {"max_tokens": MAX_TOKENS, "logprobs": True, "top_logprobs": 5}
        if _REASONING.search(self.model.model):
            options = {"max_completion_tokens": MAX_TOKENS}
        else:
            options["temperature"] = 0
        return Request(self.prompt.messages(pair), options, sample=attempt)

    def _read(self, outcome: Reply | Failure) -> Verdict:
        if isinstance(outcome, Failure):
            return Verdict(ERROR, math.nan, reasoning=str(outcome))
        try:
            return parse_answer(outcome, self.ternary)
        except LLMParseError as error:
            return Verdict(ERROR, math.nan, reasoning=str(error))

    @property
    def cost(self) -> float:
        """Dollars spent so far; answers from the cache cost nothing."""
        return self.model.usage.cost(*self.prices)

    def _affordable(self) -> int:
        """Return how many more pairs may be asked: one to learn the price, then what the rest of it pays for."""
        if self.max_cost is None:
            return _BATCH
        usage = self.model.usage
        if not usage.calls:
            return 1
        left = self.max_cost - self.cost
        return max(0, min(_BATCH, math.ceil(left / max(self.cost / usage.calls, 1e-12))))

    def explain(self, pair: Pair) -> dict[str, float]:
        """Return the model's probability and stated confidence; its words are in `verdicts`."""
        verdict = self.verdicts([pair])[0]
        return {f"{verdict.classification}: {verdict.reasoning}"[:200]: verdict.p}


def open_model(name: str, base_url: str | None, cache: str | None, parallel: int) -> ChatModel:
    """Open a chat model by the name that the command line takes."""
    if name.startswith("hf:"):
        from sanctionspairs.hf import hf_chat

        return hf_chat(name.removeprefix("hf:"), cache=cache)
    settings: dict[str, Any] = {}
    if name not in ("smollm2",) and not name.startswith(("gguf:", "replay:")):
        settings = {"concurrency": parallel, "max_retries": 4, "timeout": 120.0}
    try:
        return open_chat(name, base_url=base_url, cache=cache, **settings)
    except InputError as error:
        raise SanctionsPairsError(error.message, error.hint) from error
