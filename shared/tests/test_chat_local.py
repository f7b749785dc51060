"""The packaged model answers, the same way each time."""

from __future__ import annotations

import pytest

from papers_shared import InputError
from papers_shared.chat import ChatError, Usage, local_chat


@pytest.fixture(scope="module")
def model():
    return local_chat(n_ctx=512)


def test_temperature_zero_is_deterministic_whatever_was_asked_before(model):
    first = model.chat("What is the capital of France?", temperature=0, max_tokens=4)
    model.chat("What is the capital of Italy?", temperature=0, max_tokens=2)
    second = model.chat("What is the capital of France?", temperature=0, max_tokens=4)
    assert first.text == second.text != ""
    assert (first.finish_reason, first.completion_tokens) == ("length", 4)
    assert 20 < first.prompt_tokens < 60


def test_samples_differ_by_their_number_and_repeat_with_their_seed(model):
    first = [reply.text for reply in model.sample("Say a word.", 2, temperature=1.5, max_tokens=4)]
    again = [reply.text for reply in model.sample("Say a word.", 2, temperature=1.5, max_tokens=4)]
    assert first == again
    assert len(set(first)) > 1


def test_log_probabilities_are_of_the_greedy_token(model):
    reply = model.chat("Is water wet?", temperature=0, max_tokens=2, logprobs=True, top_logprobs=3)
    assert "".join(token.token for token in reply.logprobs) == reply.text
    for token in reply.logprobs:
        assert len(token.top) == 3
        assert token.logprob == max(token.top.values()) <= 0


def test_answer_keeps_to_a_json_schema(model):
    schema = {"type": "object", "properties": {"wet": {"type": "boolean"}}, "required": ["wet"]}
    style = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
    reply = model.chat("Is water wet?", temperature=0, max_tokens=30, response_format=style)
    assert isinstance(reply.json()["wet"], bool)


def test_refusals_are_told_apart(model):
    with pytest.raises(ChatError, match=r"context size .*; shorten the messages or raise n_ctx") as caught:
        model.chat("word " * 700)
    assert caught.value.kind == "context_length"
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    with pytest.raises(ChatError, match="image input is not supported") as caught:
        model.chat([{"role": "user", "content": [picture]}])
    assert caught.value.kind == "bad_request"


def test_answer_that_takes_too_long_is_stopped():
    with pytest.raises(ChatError, match="was not done after") as caught:
        local_chat(n_ctx=512, timeout=0.001).chat("Tell a long story.", max_tokens=400)
    assert caught.value.kind == "timeout"


def test_cached_answers_need_no_model(tmp_path, monkeypatch):
    first = local_chat(n_ctx=512, cache=tmp_path).chat("Hello", temperature=0, max_tokens=3)
    monkeypatch.setattr("papers_shared.chat.local._load", None)
    second = local_chat(n_ctx=512, cache=tmp_path).chat("Hello", temperature=0, max_tokens=3)
    assert second.text == first.text
    assert second.usage == Usage(cache_hits=1)


def test_file_that_is_no_model_is_an_input_error(tmp_path):
    (tmp_path / "a.gguf").write_bytes(b"GGUF nothing")
    with pytest.raises(InputError, match=r"a\.gguf: llama\.cpp cannot load it"):
        local_chat(tmp_path / "a.gguf").chat("q")
