"""Peers and adapters: splink, DSPy's MIPROv2, a Hugging Face model, Spark's frames, the fuzzy baseline by hand."""

import json
import os
import subprocess
import sys
from difflib import SequenceMatcher

import numpy as np
import pandas as pd
import pytest
from sanctionspairs_records import make_pair

from papers_shared.chat.testing import FakeChatServer
from sanctionspairs.errors import PairFormatError, SanctionsPairsError
from sanctionspairs.evaluate import labels_of
from sanctionspairs.io import write_pairs
from sanctionspairs.matchers import MATCHERS, Matcher, get
from sanctionspairs.mipro import score_answer, server_of, trials_for
from sanctionspairs.prompts import Registry
from sanctionspairs.spark import map_in_pandas


def test_every_matcher_is_made_by_name_and_keeps_the_protocol(small):
    for name in set(MATCHERS) - {"llm"}:
        matcher = get(name)
        assert isinstance(matcher, Matcher), name
        if matcher.trained and name != "splink":
            scores = matcher.score(small.pairs[:20])
            assert scores.dtype == np.float64
            assert ((scores >= 0) & (scores <= 1)).all()
            assert all(isinstance(value, float) for value in matcher.explain(small.pairs[0]).values())
    with pytest.raises(SanctionsPairsError, match="no matcher"):
        get("magic")
    with pytest.raises(SanctionsPairsError, match="unexpected keyword"):
        get("regression-v1", wrong=1)


@pytest.mark.parametrize(
    ("left", "right", "score"),
    [
        ({"name": "Ivan Petrov"}, {"name": "PETROV ivan"}, 0.7),
        ({"name": "Ivan Petrov", "country": "ru"}, {"name": "Petrov Ivan", "nationality": "ru"}, 0.8),
        ({"name": "Ivan Petrov", "birthDate": "1970-01-02"}, {"name": "Petrov Ivan", "birthDate": "1970-01-02"}, 0.9),
        ({"name": "Ivan Petrov", "birthDate": "1970-01-02"}, {"name": "Petrov Ivan", "birthDate": "1970"}, 0.8),
        ({"name": "X", "alias": "Ivan"}, {"name": "Ivan"}, 0.0),
        (
            {"name": "Ivan", "birthDate": "1970", "country": "ru"},
            {"name": "Ivan", "birthDate": "1970", "country": "ru"},
            1.0,
        ),
        ({}, {"name": "Ivan"}, 0.0),
    ],
)
def test_fuzzy_by_hand(left, right, score):
    assert get("fuzzy").score([make_pair(left, right)])[0] == pytest.approx(score)


def test_fuzzys_bounds_change_nothing(small):
    for pair in small.pairs[:150]:
        ratios = [0.0]
        for a in pair.left.get("name", quiet=True):
            for b in pair.right.get("name", quiet=True):
                a_, b_ = (" ".join(sorted(x.lower().split())) for x in (a, b))
                ratios.append(SequenceMatcher(None, a_, b_).ratio())
        assert get("fuzzy").explain(pair)["name"] == pytest.approx(0.7 * max(ratios))


@pytest.mark.filterwarnings("ignore")
def test_splink_ranks_pairs(small):
    from sklearn.metrics import roc_auc_score

    people = [pair for pair in small.pairs if pair.left.schema.name == "Person"][:250]
    scores = get("splink", max_pairs=2e4).score(people)
    assert roc_auc_score(labels_of(people), scores) > 0.6


def test_frames_of_json_are_scored_as_spark_moves_them(small):
    pairs = small.pairs[:30]
    frame = pd.DataFrame(
        {side: [json.dumps(getattr(pair, side).to_dict()) for pair in pairs] for side in ("left", "right")}
    )
    parts = list(map_in_pandas("regression-v1")(iter([frame[:10], frame[10:]])))
    assert [len(part) for part in parts] == [10, 20]
    joined = pd.concat(parts)
    assert np.allclose(joined["score"], get("regression-v1").score(pairs), atol=1e-12)
    assert joined["left_id"].tolist() == [pair.left.id for pair in pairs]
    with pytest.raises(PairFormatError, match="line 1"):
        list(map_in_pandas("regression-v1")(iter([pd.DataFrame({"left": ["{"], "right": ["{}"]})])))


def test_the_metric_and_the_rule_of_trials():
    assert score_answer("negative", "Negative ", "negatives") == 1.5
    assert score_answer("positive", "positive", "negatives") == score_answer("negative", "negative") == 1.0
    assert score_answer("negative", "positive", "negatives") == 0.0
    with pytest.raises(SanctionsPairsError, match="no metric"):
        score_answer("a", "a", "f1")
    assert trials_for(15, zero_shot=False) == 22
    assert trials_for(4, zero_shot=False) == 8
    assert server_of("http://h/v1#m", None) == server_of("openai:m", "http://h/v1") == ("m", "http://h/v1")


def test_miprov2_searches_on_a_scripted_server_and_the_prompt_replays_without_it(small, tmp_path):
    """The scripted model is right when its instruction is a proposed one, and wrong half of the time otherwise."""
    path = write_pairs(tmp_path / "pairs.jsonl", small.pairs[:60])
    truth = {
        pair.left.get("name", quiet=True)[0]: pair.judgement
        for pair in small.pairs[:60]
        if pair.left.has("name", quiet=True)
    }

    def answer(body):
        text = " ".join(str(message["content"]) for message in body["messages"])
        question = str(body["messages"][-1]["content"])
        if "classification" not in text or "propose" in text.lower():
            said = dict.fromkeys(("observations", "summary", "program_description", "module_description"), "ok")
            return json.dumps({"proposed_instruction": "Weigh every field. MAGIC", **said})
        known = next((kind for name, kind in truth.items() if name in question), "positive")
        kind = known if "MAGIC" in text or hash(question) % 2 else "negative"
        return json.dumps({"classification": kind, "confidence": "high", "reasoning": "r"})

    with FakeChatServer(answer) as server:
        search = ["--sample", 60, "--candidates", 3, "--trials", 3, "--demos", 2, "--parallel", 2]
        saved_as = ["--id", "found", "--registry", tmp_path / "prompts", "--json", "-q"]
        arguments = ["optimise", path, "--model", "openai:m", "--base-url", server.base_url, *search, *saved_as]
        code = "from sanctionspairs.cli import app; app()"
        environment = os.environ | {
            "PYTHONWARNINGS": "ignore",
            "OPENAI_API_KEY": "k",
            "PYTHONHASHSEED": "0",
            "DSPY_CACHEDIR": str(tmp_path / "cache"),
        }
        done = subprocess.run(
            [sys.executable, "-c", code, *map(str, arguments)],
            capture_output=True,
            text=True,
            env=environment,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        saved = Registry(tmp_path / "prompts").load("found")
        assert saved.provenance["optimizer"] == "MIPROv2"
        assert saved.provenance["dev_f1"] >= saved.provenance["dev_f1_before"]
        assert "<record>" in saved.system_prompt
        assert '"classification"' in saved.system_prompt
        before = len(server.requests)
        matcher = get(
            "llm", model="openai:m", base_url=server.base_url, prompt="found", registry=str(tmp_path / "prompts")
        )
        assert np.isfinite(matcher.score(small.pairs[:3])).all()
        assert server.requests[before]["messages"][0]["content"] == saved.system_prompt


def test_a_hugging_face_folder_answers_with_logprobs(tmp_path):
    """A tiny random model of the real kind: its answers make no sense, and are counted as errors, not as negatives."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    words = {chr(code): code for code in range(256)} | {"</s>": 256}
    raw = Tokenizer(models.WordLevel(words, unk_token=" "))
    raw.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    PreTrainedTokenizerFast(tokenizer_object=raw, eos_token="</s>", unk_token=" ").save_pretrained(tmp_path / "m")
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = LlamaConfig(vocab_size=257, eos_token_id=256, bos_token_id=None, **sizes)
    LlamaForCausalLM(config).save_pretrained(tmp_path / "m")
    from sanctionspairs.hf import hf_chat

    model = hf_chat(str(tmp_path / "m"))
    reply = model.chat("Are these one?", max_tokens=5)
    assert 1 <= reply.completion_tokens <= 5
    assert len(reply.logprobs) == reply.completion_tokens
    assert all(item.logprob <= 0 and item.logprob == max(item.top.values()) for item in reply.logprobs)
    assert model.chat("Are these one?", max_tokens=5).text == reply.text
    with pytest.raises(SanctionsPairsError, match="cannot load"):
        hf_chat(str(tmp_path / "none"))
