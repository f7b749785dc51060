"""A run killed at any moment loses at most the calls in flight, and the same call again asks for the rest only."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from papers_shared.chat import openai_chat
from papers_shared.chat.testing import FakeChatServer, Fault

COUNT, CONCURRENCY = 100, 4

# A job that a shell starts in the background begins with interrupts ignored, and so would this child of it.
RUN = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from papers_shared.chat import openai_chat
with openai_chat(sys.argv[1], "m", cache=sys.argv[2], concurrency=int(sys.argv[4])) as model:
    model.chat_many([f"question {i}" for i in range(int(sys.argv[3]))])
"""


@contextlib.contextmanager
def running(server, cache, count, concurrency):
    """The run in a process of its own, that has begun to ask."""
    command = [sys.executable, "-c", RUN, server.base_url, str(cache), str(count), str(concurrency)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as child:
        try:
            limit = time.monotonic() + 300
            while len(server.requests) < min(20, count):
                assert child.poll() is None
                assert time.monotonic() < limit
                time.sleep(0.002)
            yield child
        finally:
            child.kill()


@pytest.mark.skipif(os.name == "nt", reason="needs signals")
@pytest.mark.parametrize("stop", [signal.SIGKILL, signal.SIGINT], ids=["kill", "ctrl-c"])
def test_resume_after_a_kill_asks_only_what_is_missing(tmp_path, stop):
    with FakeChatServer(lambda body: time.sleep(0.01) or body["messages"][0]["content"].upper()) as server:
        with running(server, tmp_path, COUNT, CONCURRENCY) as child:
            child.send_signal(stop)
            assert child.wait(timeout=300) == -stop
        asked = server.settled()
        assert asked < COUNT
        kept = [json.loads(path.read_text()) for path in tmp_path.glob("*/[!.]*.json")]  # each of them is whole
        assert asked - CONCURRENCY <= len(kept) <= asked

        with openai_chat(server.base_url, "m", cache=tmp_path, concurrency=CONCURRENCY) as model:
            replies = model.chat_many([f"question {i}" for i in range(COUNT)])
        assert [reply.text for reply in replies] == [f"QUESTION {i}" for i in range(COUNT)]
        assert len(server.requests) - asked == COUNT - len(kept) == model.usage.calls
        assert model.usage.cache_hits == len(kept)


def test_ctrl_c_does_not_wait_for_the_calls_in_flight(tmp_path):
    with FakeChatServer(faults=lambda body: Fault.slow(600.0)) as server, running(server, tmp_path, 2, 2) as child:
        child.send_signal(signal.SIGINT)
        assert child.wait(timeout=300) == -signal.SIGINT
