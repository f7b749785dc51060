"""Prompt optimisation with DSPy's MIPROv2: instructions and examples searched on dev, saved as a prompt to replay."""

from __future__ import annotations

import datetime
import json
import math
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from sanctionspairs.errors import SanctionsPairsError
from sanctionspairs.evaluate import confusion, f1_of, labels_of
from sanctionspairs.llm import LLMMatcher, open_model
from sanctionspairs.prompts import Prompt, pair_text, reason, system_prompt
from sanctionspairs.records import NEGATIVE, Pair
from sanctionspairs.split import stratified

METRICS = ("exact", "negatives")
NEGATIVE_WEIGHT = 1.5


def score_answer(gold: str, predicted: str, metric: str = "exact") -> float:
    """Return what an answer is worth: 1 if right; with ``negatives`` 1.5 for a right negative; else 0.

    Raises
    ------
    SanctionsPairsError
        An unknown metric.
    """
    if metric not in METRICS:
        raise SanctionsPairsError(f"no metric {metric!r}", f"choose {' or '.join(METRICS)}")
    if gold != predicted.strip().lower():
        return 0.0
    return NEGATIVE_WEIGHT if metric == "negatives" and gold == NEGATIVE else 1.0


def trials_for(candidates: int, zero_shot: bool) -> int:
    r"""Return MIPROv2's own rule for one predictor: :math:`\\max(2 v \\log_2 N, 1.5 N)`, v variables, N candidates."""
    variables = 1 if zero_shot else 2
    return int(max(2 * variables * math.log2(max(2, candidates)), 1.5 * candidates))


def optimise(
    dev: Sequence[Pair],
    model: str,
    base_url: str | None = None,
    *,
    prompt_id: str = "mipro",
    metric: str = "exact",
    num_candidates: int = 15,
    init_temperature: float = 1.0,
    max_demos: int = 8,
    trials: int | None = None,
    framing: str = "conflict",
    parallel: int = 8,
    seed: int = 42,
) -> Prompt:
    """Search instruction and examples for a model on dev; return them with dev F1 before and after.

    Parameters
    ----------
    dev
        Judged pairs; split 80/20 into what proposes and what chooses. F1 is measured on the latter.
    model, base_url
        ``openai:NAME`` or ``URL#NAME`` of an OpenAI-compatible server; the key comes from the environment.
    prompt_id
        For the registry.
    metric
        ``exact``, or ``negatives`` with 1.5 for a right negative.
    num_candidates, init_temperature, max_demos
        As in the paper: 15, 1.0, 8; ``max_demos=0`` is the zero-shot arm.
    trials
        Prompts tried; by default MIPROv2's own rule.
    framing
        The instruction to start from.
    parallel
        Most requests at once.
    seed
        Of the split and of the search.

    Returns
    -------
    Prompt
        The best of the search, or the start if that is not better on the choosing part; ``provenance`` says which.

    Raises
    ------
    SanctionsPairsError
        dspy is not installed, or there are too few pairs.
    """
    try:
        import dspy
    except ImportError as error:
        raise SanctionsPairsError("optimising prompts needs dspy", "install sanctionspairs[mipro]") from error
    name, url = server_of(model, base_url)
    val, train = stratified(dev, seed=seed, dev=0.2)
    if len(train) < 4 or len(val) < 2:
        raise SanctionsPairsError(f"{len(dev)} judged pairs are too few to optimise on", "give 20 or more")
    start = Prompt("start", name, system_prompt(framing))
    lm = dspy.LM(
        f"openai/{name}",
        api_base=url,
        api_key=os.environ.get("OPENAI_API_KEY") or "none",
        temperature=0.0,
        max_tokens=512,
        cache=False,
    )
    found = _search(
        dspy, lm, start, train, val, metric, num_candidates, init_temperature, max_demos, trials, parallel, seed
    )
    before, after = (_dev_f1(prompt, val, model, base_url, parallel) for prompt in (start, found))
    kept = found if after > before else start
    provenance = {
        "optimizer": "MIPROv2",
        "dspy": dspy.__version__,
        "metric": metric,
        "num_candidates": num_candidates,
        "init_temperature": init_temperature,
        "max_demos": max_demos,
        "dev_pairs": len(val),
        "dev_f1_before": before,
        "dev_f1_search": after,
        "dev_f1": max(before, after),
        "kept": "search" if kept is found else "start",
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "seed": seed,
    }
    return Prompt(prompt_id, name, kept.system_prompt, kept.user_template, kept.demonstrations, provenance)


def server_of(model: str, base_url: str | None) -> tuple[str, str]:
    """Return a model's name and its server's address from ``openai:NAME`` or ``URL#NAME``."""
    address, _, name = model.removeprefix("openai:").rpartition("#")
    url = address or base_url or os.environ.get("OPENAI_BASE_URL", "")
    if not name or "://" not in url:
        raise SanctionsPairsError(f"{model!r} names no model on a server", "write openai:NAME with --base-url URL")
    return name, url


def _search(
    dspy: Any,
    lm: Any,
    start: Prompt,
    train: Sequence[Pair],
    val: Sequence[Pair],
    metric: str,
    num_candidates: int,
    init_temperature: float,
    max_demos: int,
    trials: int | None,
    parallel: int,
    seed: int,
) -> Prompt:
    """Run MIPROv2 over one predictor and translate what it found into a prompt of ours."""
    signature = dspy.Signature("records -> classification, confidence, reasoning", start.system_prompt)
    program = dspy.Predict(signature)

    def worth(example: Any, prediction: Any, trace: Any = None) -> float:
        return score_answer(example.classification, str(prediction.classification), metric)

    with dspy.context(lm=lm, adapter=dspy.JSONAdapter()):
        optimiser = dspy.MIPROv2(
            metric=worth,
            prompt_model=lm,
            task_model=lm,
            auto=None,
            num_candidates=num_candidates,
            init_temperature=init_temperature,
            max_bootstrapped_demos=max_demos // 2,
            max_labeled_demos=max_demos,
            num_threads=parallel,
            seed=seed,
        )
        best = optimiser.compile(
            program,
            trainset=[_example(dspy, pair) for pair in train],
            valset=[_example(dspy, pair) for pair in val],
            num_trials=trials or trials_for(num_candidates, max_demos == 0),
            minibatch=len(val) > 50,
        )
    predictor = best.predictors()[0]
    demonstrations = [message for demo in predictor.demos for message in _messages(demo)]
    instruction = predictor.signature.instructions.strip()
    if instruction != start.system_prompt.strip():
        # A proposed instruction may forget the fence and the format of the answer, which the reader depends on.
        context, _, rest = start.system_prompt.partition("\n\n")
        instruction = f"{context}\n\n{instruction}\n\n{rest.rpartition(chr(10) * 2)[2]}"
    return Prompt("found", start.model, instruction, demonstrations=tuple(demonstrations))


def _example(dspy: Any, pair: Pair) -> Any:
    answer = {"classification": pair.judgement, "confidence": "high", "reasoning": reason(pair)}
    return dspy.Example(records=pair_text(pair), **answer).with_inputs("records")


def _messages(demo: Any) -> list[dict[str, str]]:
    data = {key: str(demo.get(key) or "high") for key in ("classification", "confidence", "reasoning")}
    return [
        {"role": "user", "content": str(demo["records"])},
        {"role": "assistant", "content": json.dumps(data, ensure_ascii=False)},
    ]


def _dev_f1(prompt: Prompt, pairs: Sequence[Pair], model: str, base_url: str | None, parallel: int) -> float:
    """Measure a prompt as it will be replayed; pairs without an answer count as wrong."""
    matcher = LLMMatcher(open_model(model, base_url, None, parallel), prompt=prompt)
    answers = matcher.verdicts(pairs)
    labels = labels_of(pairs)
    yes = np.array([verdict.classification == "positive" for verdict in answers])
    counts = confusion(yes, labels)
    missed = sum(v.classification == "error" and y == 0 for v, y in zip(answers, labels, strict=True))
    return f1_of(counts.tp, counts.fp + missed, counts.fn)
