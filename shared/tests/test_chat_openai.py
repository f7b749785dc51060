"""A server that misbehaves in every way, on a real socket: asked again, bounded, counted; the key stays secret."""

from __future__ import annotations

import email.utils
import logging
import threading
import time

import pytest

from papers_shared.chat import ChatError, Failure, Request, Usage, openai_chat
from papers_shared.chat.retry import Retry, TransientError, retry_after
from papers_shared.chat.testing import FakeChatServer, Fault

SECRET = "sk-0123456789abcdefghijklmnop"
FAST = {"backoff": 0.001, "timeout": 30.0, "total_timeout": 60.0}


@pytest.fixture(autouse=True)
def no_key(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def ask(server, question="What is this?", *, stream=False, settings=None, **options):
    with openai_chat(server.base_url, "m", stream=stream, **{**FAST, **(settings or {})}) as model:
        return model.chat(question, **options), model.usage


TRANSIENT = {
    "429": Fault.status(429, "slow down"),
    "500": Fault.status(500),
    "502 with HTML": Fault("body", 502, {}, "<html>Bad gateway</html>"),
    "503": Fault.status(503, "loading model"),
    "529": Fault.status(529, "overloaded"),
    "408": Fault.status(408),
    "malformed": Fault.malformed(),
    "HTML with 200": Fault.body_is("<html>Please log in</html>"),
    "empty": Fault.body_is(""),
    "no choices": Fault.body_is('{"choices": []}'),
    "null": Fault.body_is("null"),
    "no message": Fault.body_is('{"choices": [{"text": "a"}]}'),
    "content of a wrong type": Fault.body_is('{"choices": [{"message": {"content": 3}}]}'),
    "endless brackets": Fault.body_is("[" * 100_000),
    "a count beyond all bounds": Fault.body_is('{"choices": [{"message": {}}], "usage": {"prompt_tokens": 1e999}}'),
    "error inside 200": Fault.body_is('{"error": {"message": "upstream", "code": 502}}'),
    "cut": Fault.cut(),
    "drop": Fault.drop(),
}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("fault", TRANSIENT.values(), ids=TRANSIENT)
def test_passing_fault_is_asked_again(fault, stream):
    with FakeChatServer(faults=[fault, fault]) as server:
        reply, usage = ask(server, "one two three", stream=stream)
    assert reply.text == "one two three"
    assert len(server.requests) == 3
    assert usage == reply.usage == Usage(calls=1, retries=2, prompt_tokens=3, completion_tokens=3)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("fault", TRANSIENT.values(), ids=TRANSIENT)
def test_fault_that_stays_is_given_up_after_max_retries(fault, stream):
    with FakeChatServer(faults=lambda body: fault) as server:
        with openai_chat(server.base_url, "m", stream=stream, max_retries=2, **FAST) as model:
            (outcome,) = model.chat_many(["q"])
        assert isinstance(outcome, Failure)
        assert outcome.transient
        assert outcome.error.attempts == len(server.requests) == 3
        assert model.usage == outcome.usage == Usage(failures=1, retries=2)
        assert "asked 3 times" in str(outcome)
        assert server.base_url in str(outcome)


@pytest.mark.parametrize(
    ("fault", "kind", "says"),
    [
        (Fault.status(400, "temperature must be below 2"), "bad_request", "answered 400: temperature must be below 2"),
        (Fault("body", 422, {}, '{"detail": [{"loc": ["body"]}]}'), "bad_request", "loc"),
        (Fault.status(401, "wrong key"), "auth", "wrong key; set OPENAI_API_KEY"),
        (Fault.status(403, "forbidden"), "auth", "forbidden"),
        (Fault.status(404, "no model m"), "not_found", "no model m; is 'm' the model's name there"),
        (Fault("body", 404, {}, '{"error": "model not found"}'), "not_found", "model not found"),
        (Fault("body", 301, {"Location": "https://x"}, ""), "not_found", "answered 301"),
        (Fault.status(400, "x", error_code="context_length_exceeded"), "context_length", "shorten the messages"),
        (
            Fault.status(400, "This model's maximum context length is 8"),
            "context_length",
            "maximum context length is 8",
        ),
        (Fault.status(500, "exceeds the available context size"), "context_length", "available context size"),
        (Fault.status(429, "pay first", error_code="insufficient_quota"), "quota", "pay first; top up"),
        (Fault.body_is('{"error": {"message": "bad schema", "code": 400}}'), "bad_request", "bad schema"),
        (Fault.status(501, "not here"), "bad_request", "not here"),
    ],
)
def test_final_error_is_not_asked_again_and_gives_the_servers_words(fault, kind, says):
    with FakeChatServer(faults=[fault]) as server:
        with pytest.raises(ChatError, match=says) as caught:
            ask(server)
        assert (caught.value.kind, caught.value.transient) == (kind, False)
        assert len(server.requests) == 1


def test_server_that_is_not_there_is_reported_with_its_address():
    with FakeChatServer() as server:
        pass
    with pytest.raises(ChatError, match=r"cannot be reached .*asked 2 times") as caught:
        ask(server, settings={"max_retries": 1})
    assert caught.value.kind == "unavailable"
    assert server.base_url in str(caught.value)


def test_retry_after_in_seconds_is_waited_for():
    with FakeChatServer(faults=[Fault.status(429, retry_after="0.3")]) as server:
        ask(server)
    assert server.times[1] - server.times[0] >= 0.3


def test_retry_after_as_a_date_is_waited_for():
    moment = int(time.time()) + 2
    with FakeChatServer(faults=[Fault.status(429, retry_after=email.utils.formatdate(moment, usegmt=True))]) as server:
        ask(server)
    asked_again = server.times[1] - time.monotonic() + time.time()
    assert asked_again >= moment - 0.01


def test_retry_after_also_comes_with_503():
    with FakeChatServer(faults=[Fault.status(503, retry_after="0.2")]) as server:
        ask(server)
    assert server.times[1] - server.times[0] >= 0.2


def test_retry_after_is_capped():
    with FakeChatServer(faults=[Fault.status(429, retry_after="3600")]) as server:
        ask(server, settings={"max_wait": 0.2})
    assert 0.2 <= server.times[1] - server.times[0] < 5


def test_wait_that_passes_the_limit_of_a_request_is_not_begun():
    with FakeChatServer(faults=[Fault.status(429, "later", retry_after="30")]) as server:
        begun = time.monotonic()
        with pytest.raises(ChatError, match="a wait of 30 s would pass the limit") as caught:
            ask(server, settings={"total_timeout": 20.0})
        assert time.monotonic() - begun < 10
        assert caught.value.kind == "rate_limit"


def test_retry_after_of_one_holds_for_all_threads(caplog):
    caplog.set_level(logging.INFO, "papers_shared.chat")
    faults = [Fault.status(429, retry_after="0.5")]
    with FakeChatServer(faults=faults) as server, openai_chat(server.base_url, "m", **FAST) as model:
        first = threading.Thread(target=model.chat, args=("a",))
        first.start()
        while "attempt 1 failed" not in caplog.text:  # the other thread has read the header
            time.sleep(0.002)
        model.chat("b")
        first.join()
    assert min(server.times[1:]) - server.times[0] >= 0.5


@pytest.mark.parametrize(
    ("header", "seconds"),
    [(None, None), ("2", 2), ("0.5", 0.5), ("-3", 0), ("soon", None), ("nan", None), ("inf", None)],
)
def test_retry_after_forms(header, seconds):
    assert retry_after(header) == seconds


def test_retry_after_date_in_the_past_is_no_wait():
    assert retry_after("Wed, 21 Oct 2015 07:28:00 GMT") == 0


def waits(seed, key, monkeypatch):
    slept = []
    monkeypatch.setattr("papers_shared.chat.retry.time.sleep", lambda seconds: slept.append(seconds))

    def fail(seconds):
        raise TransientError("down", kind="unavailable")

    retry = Retry(max_retries=6, timeout=1, total_timeout=1000, backoff=1.0, max_wait=10.0, seed=seed)
    with pytest.raises(ChatError):
        retry.run(fail, key)
    return [seconds for seconds in slept if seconds > 0]


def test_backoff_doubles_with_jitter_up_to_its_cap_and_is_the_same_for_the_same_seed(monkeypatch):
    first = waits(0, "a", monkeypatch)
    for place, seconds in enumerate(first):
        assert min(2**place / 2, 10) <= seconds <= min(2**place, 10)
    assert len(first) == 6
    assert first == waits(0, "a", monkeypatch)
    assert first != waits(1, "a", monkeypatch)
    assert first != waits(0, "b", monkeypatch)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("fault", [Fault.slow(600.0), Fault.trickle(0.1)], ids=["silent", "trickle"])
def test_slow_answer_is_bounded_and_asked_again(fault, stream):
    with FakeChatServer(faults=[fault]) as server:
        reply, usage = ask(server, "a " * 50, stream=stream, settings={"timeout": 0.5})
    assert reply.text == "a " * 50
    assert usage.retries >= 1
    assert server.times[1] - server.times[0] < 5  # the trickle alone would take 25 s


@pytest.mark.parametrize("fault", [Fault.slow(600.0), Fault.trickle(0.1)], ids=["silent", "trickle"])
def test_slow_server_is_given_up_within_the_total_time(fault):
    with FakeChatServer(faults=lambda body: fault) as server:
        begun = time.monotonic()
        with pytest.raises(ChatError, match="no whole answer") as caught:
            ask(server, "a " * 50, settings={"timeout": 0.3, "total_timeout": 0.7, "max_retries": 99})
        assert caught.value.kind == "timeout"
        assert time.monotonic() - begun < 5


def test_silent_stream_is_given_up_after_the_stall_time():
    with FakeChatServer(faults=[Fault.slow(600.0)]) as server:
        ask(server, stream=True, settings={"stall": 0.2, "timeout": 60.0, "total_timeout": 60.0})
    assert server.times[1] - server.times[0] < 10


@pytest.mark.parametrize("concurrency", [1, 3])
def test_no_more_requests_are_open_than_allowed(concurrency):
    with (
        FakeChatServer(lambda body: time.sleep(0.02) or "x") as server,
        openai_chat(server.base_url, "m", concurrency=concurrency, **FAST) as model,
    ):
        questions = [[f"{caller}.{i}" for i in range(6)] for caller in range(3)]
        callers = [threading.Thread(target=model.chat_many, args=(each,)) for each in questions]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()
    assert len(server.requests) == 18
    assert server.most_open == concurrency


def test_many_requests_under_random_faults_all_arrive_and_the_counts_add_up(tmp_path):
    kinds = [None, *TRANSIENT.values()]
    seen = {}

    def faults(body):
        question = body["messages"][0]["content"]
        seen[question] = seen.get(question, -1) + 1
        return kinds[int(question) % len(kinds)] if seen[question] < int(question) % 3 else None

    with (
        FakeChatServer(faults=faults) as server,
        openai_chat(server.base_url, "m", concurrency=8, cache=tmp_path, **FAST) as model,
    ):
        replies = model.chat_many([str(i) for i in range(60)])
        again = model.chat_many([str(i) for i in range(60)])
    assert [reply.text for reply in replies] == [str(i) for i in range(60)]
    assert model.usage.calls + model.usage.retries == len(server.requests)
    assert model.usage.cache_hits == sum(reply.cached for reply in again) == 60
    assert sum((reply.usage for reply in replies + again), Usage()) == model.usage
    assert model.usage.completion_tokens == 60


def test_cache_hit_asks_nobody_and_gives_the_same(tmp_path):
    options = {"temperature": 0, "logprobs": True, "top_logprobs": 2}
    with FakeChatServer(lambda body: "a\u2028 b") as server:
        with openai_chat(server.base_url, "m", cache=tmp_path, **FAST) as model:
            first = model.chat("q", **options)
        with openai_chat(server.base_url, "m", cache=tmp_path, **FAST) as model:
            second = model.chat("q", **options)
            model.chat("q", **options, seed=1)
    assert len(server.requests) == 2
    assert (first.text, first.logprobs, first.prompt_tokens) == (second.text, second.logprobs, second.prompt_tokens)
    assert second.cached
    assert second.usage == Usage(cache_hits=1)


def test_cache_answers_when_the_server_is_gone(tmp_path):
    with FakeChatServer() as server, openai_chat(server.base_url, "m", cache=tmp_path, **FAST) as model:
        model.chat("q")
    with openai_chat(server.base_url, "m", cache=tmp_path, **FAST) as model:
        assert model.chat("q").text == "q"


def test_cache_tells_servers_and_models_apart_unless_told_otherwise(tmp_path):
    with FakeChatServer() as one, FakeChatServer() as other:
        for server, name, identity in [(one, "m", None), (other, "m", None), (one, "n", None), (one, "m", "i")]:
            with openai_chat(server.base_url, name, cache=tmp_path, identity=identity, **FAST) as model:
                assert not model.chat("q").cached
        with openai_chat(other.base_url, "m", cache=tmp_path, identity="i", **FAST) as model:
            assert model.chat("q").cached


def test_streamed_answer_equals_the_whole_one():
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"where": "here"}'}}
    answers = {
        "words": "Zürich\u2028 is a city",
        "tools": {
            "finish_reason": "tool_calls",
            "message": {"role": "assistant", "content": None, "tool_calls": [call]},
        },
    }
    for name, answer in answers.items():
        with FakeChatServer(lambda body, answer=answer: answer) as server:
            whole, _ = ask(server, logprobs=name == "words", top_logprobs=2)
            streamed, _ = ask(server, stream=True, logprobs=name == "words", top_logprobs=2)
        assert whole == streamed
        assert server.requests[1]["stream"] is True
    assert whole.tool_calls[0].arguments == {"where": "here"}


def test_log_probabilities_are_given_or_absent_as_the_server_can():
    with FakeChatServer(lambda body: "yes sir") as server:
        reply, _ = ask(server, logprobs=True, top_logprobs=2)
    assert [token.token for token in reply.logprobs] == ["yes", " sir"]
    assert reply.logprobs[0].top == pytest.approx({"yes": -0.6931, "?": -0.6931}, abs=1e-4)
    with FakeChatServer(logprobs=False) as server:
        assert ask(server, logprobs=True)[0].logprobs is None


def test_options_and_messages_arrive_as_given():
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    options = {
        "temperature": 0.5,
        "stop": ["\n"],
        "tools": [tool],
        "response_format": {"type": "json_object"},
        "min_p": 0.1,
    }
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 500}}
    messages = [{"role": "user", "content": [{"type": "text", "text": "half \ud800"}, picture]}]
    with FakeChatServer(lambda body: "ok") as server:
        ask(server, messages, seed=7, sample=2, **options)
    assert server.requests == [{"model": "m", "messages": messages, "seed": 9, **options}]


def test_defaults_are_asked_and_can_be_overridden():
    with FakeChatServer() as server:
        ask(server, settings={"defaults": {"temperature": 0, "max_tokens": 5}}, max_tokens=9)
    assert server.requests[0]["temperature"] == 0
    assert server.requests[0]["max_tokens"] == 9


def test_raw_choice_is_kept_on_request_only():
    with FakeChatServer() as server:
        assert ask(server)[0].raw is None
        assert ask(server, settings={"keep_raw": True})[0].raw["message"]["content"] == "What is this?"


def test_address_may_be_written_with_the_whole_path():
    with FakeChatServer() as server:
        for address in (server.base_url + "/", server.base_url + "/chat/completions"):
            with openai_chat(address, "m", **FAST) as model:
                assert model.chat("q").text == "q"


def test_wrong_path_says_how_it_usually_ends():
    with FakeChatServer() as server:
        address = server.base_url.removesuffix("/v1")
        with (
            openai_chat(address, "m", **FAST) as model,
            pytest.raises(ChatError, match="does base_url end in /v1"),
        ):
            model.chat_many(["a", "b"])
        assert len(server.requests) <= 2


@pytest.mark.parametrize("way", ["argument", "environment"])
def test_key_is_sent_but_never_stored_shown_or_logged(tmp_path, monkeypatch, caplog, way):
    caplog.set_level(logging.DEBUG)
    if way == "environment":
        monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    key = SECRET if way == "argument" else None
    echo = [None, Fault.status(500, f"key {SECRET} failed"), Fault.body_is(f"<p>{'x' * 60}{SECRET}")]
    with FakeChatServer(lambda body: f"your key is {SECRET}", key=SECRET, faults=echo) as server:
        with openai_chat(server.base_url, "m", api_key=key, cache=tmp_path, keep_raw=True, **FAST) as model:
            replies = model.sample("q", 2)
            shown = repr(model) + repr(replies)
        server.key = "another"
        with openai_chat(server.base_url, "m", api_key=key, **FAST) as model, pytest.raises(ChatError) as caught:
            model.chat("q")
    assert replies[1].usage.retries + replies[0].usage.retries == 2
    stored = "".join(path.read_text() + path.name for path in tmp_path.rglob("*.json"))
    assert "your key is ***" in stored
    assert "Incorrect API key provided: Bearer ***; check the API key" in str(caught.value)
    for text in (stored, shown, caplog.text, str(caught.value), repr(caught.value)):
        assert SECRET[:12] not in text


def test_no_key_sends_no_header_and_asks_for_one():
    with FakeChatServer(key=SECRET) as server, pytest.raises(ChatError, match="provided: None; set OPENAI_API_KEY"):
        ask(server)


def test_placeholder_key_does_not_eat_words_of_the_answer():
    with FakeChatServer(lambda body: "none of them", key="none") as server:
        assert ask(server, settings={"api_key": "none"})[0].text == "none of them"


def test_failed_row_keeps_the_rest_of_a_batch():
    def faults(body):
        return Fault.status(400, "maximum context length") if "long" in body["messages"][0]["content"] else None

    with FakeChatServer(faults=faults) as server, openai_chat(server.base_url, "m", **FAST) as model:
        outcomes = model.chat_many([Request("a"), "long", [{"role": "user", "content": "b"}]])
    assert [type(outcome).__name__ for outcome in outcomes] == ["Reply", "Failure", "Reply"]
    assert outcomes[1].kind == "context_length"
