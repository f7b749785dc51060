"""Recorded answers are given back exactly, and only to the requests that they were given to."""

from __future__ import annotations

import json

import pytest

from papers_shared import InputError
from papers_shared.chat import ChatError, Reply, Request, TokenLogprob, ToolCall, Usage, function_chat, record, replay

REPLIES = {
    "words": Reply("Zürich \u2028 \ud800", "stop", reasoning="hm", prompt_tokens=4, completion_tokens=2),
    "tools": Reply("", "tool_calls", tool_calls=(ToolCall("1", "f", {"x": [1]}, '{"x": [1]}'),)),
    "logprobs": Reply("a", "length", (TokenLogprob("a", -0.25, {"a": -0.25, "b": -1.5}),)),
}


def said(reply):
    return reply.text, reply.finish_reason, reply.logprobs, reply.tool_calls, reply.reasoning, reply.completion_tokens


def test_round_trip_gives_the_same_answers(tmp_path):
    path = tmp_path / "answers.jsonl"
    requests = [Request(name, {"temperature": 0.5, "stop": None}, sample=i) for name in REPLIES for i in range(2)]
    recorder = record(function_chat(lambda request: REPLIES[request.messages[0]["content"]], model="m"), path)
    live = recorder.chat_many(requests)
    player = replay(path)
    again = player.chat_many(requests)
    assert [said(reply) for reply in again] == [said(reply) for reply in live]
    assert player.model == "m"
    assert recorder.usage == player.usage == Usage(calls=6, prompt_tokens=8, completion_tokens=4)


def test_recording_a_second_time_adds_only_what_is_new(tmp_path):
    path = tmp_path / "answers.jsonl"
    model = function_chat(lambda request: "x", concurrency=4)
    record(model, path).chat_many(["a", "b"])
    record(model, path).chat_many(["a", "b", "c"])
    assert sorted(json.loads(line)["messages"][0]["content"] for line in path.read_text().splitlines()) == [
        "a",
        "b",
        "c",
    ]


def test_failures_are_passed_on_and_not_recorded(tmp_path):
    def answer(request):
        raise ChatError("no", kind="bad_request", attempts=3)

    recorder = record(function_chat(answer), tmp_path / "answers.jsonl")
    (outcome,) = recorder.chat_many(["q"])
    assert outcome.kind == "bad_request"
    assert recorder.usage == Usage(failures=1, retries=2)
    assert not (tmp_path / "answers.jsonl").exists()


def test_long_data_urls_are_recorded_by_their_digest(tmp_path):
    path = tmp_path / "answers.jsonl"
    url = "data:video/mp4;base64," + "A" * 100_000
    messages = [{"role": "user", "content": [{"type": "video_url", "video_url": {"url": url}}]}]
    record(function_chat(lambda request: "a film"), path).chat(messages)
    assert path.stat().st_size < 1000
    assert replay(path).chat(messages).text == "a film"


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (Request("other", {"temperature": 0}), "'other' with .*sample 0; the messages were never recorded"),
        (Request("q", {"temperature": 1}), 'the same messages were recorded with .*"temperature": 0'),
        (Request("q", {"temperature": 0}, sample=3), r"sample 3; recorded are the samples \[0, 1\]"),
    ],
)
def test_unmatched_request_is_named_with_its_difference(tmp_path, request_, says):
    path = tmp_path / "answers.jsonl"
    record(function_chat(lambda request: "x"), path).sample("q", 2, temperature=0)
    player = replay(path)
    with pytest.raises(ChatError, match=says) as caught:
        player.chat(request_.messages, sample=request_.sample, **request_.options)
    assert (caught.value.kind, caught.value.transient) == ("not_recorded", False)
    (outcome,) = player.chat_many([request_])
    assert outcome.kind == "not_recorded"


def test_file_of_several_models_needs_a_name(tmp_path):
    path = tmp_path / "answers.jsonl"
    for name in ("big", "small"):
        with path.open("a") as file:
            file.write(recording_of(name, tmp_path))
    with pytest.raises(InputError, match="holds several models: big, small; name one"):
        replay(path)
    assert replay(path, model="small").chat("q").text == "small"
    with pytest.raises(InputError, match="no answer of 'middle'"):
        replay(path, model="middle")


def recording_of(name, folder):
    path = folder / f"{name}.jsonl"
    record(function_chat(lambda request: name, model=name), path).chat("q")
    return path.read_text()


@pytest.mark.parametrize("line", ["3", "{}", '{"model": "m", "messages": [], "options": {}, "sample": 0}'])
def test_file_that_is_no_recording_names_the_answer(tmp_path, line):
    path = tmp_path / "answers.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(InputError, match="answer 1 is not a recorded one"):
        replay(path)


def test_line_torn_by_a_kill_is_left_out_and_recorded_again(tmp_path):
    path = tmp_path / "answers.jsonl"
    model = function_chat(lambda request: request.messages[0]["content"])
    record(model, path).chat_many(["a", "b"])
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    assert replay(path).chat("a").text == "a"
    record(model, path).chat_many(["a", "b"])
    assert path.read_bytes() == whole
