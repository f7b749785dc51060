"""A run killed at any moment loses at most the calls in flight, and the same call again asks for the rest only."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from papers_shared.chat import openai_chat
from papers_shared.chat.testing import FakeChatServer

COUNT, CONCURRENCY = 80, 4

RUN = """
import sys
from papers_shared.chat import openai_chat
with openai_chat(sys.argv[1], "m", cache=sys.argv[2], concurrency=int(sys.argv[4])) as model:
    model.chat_many([f"question {i}" for i in range(int(sys.argv[3]))])
"""


def wait_until(condition, seconds=10.0):
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.002)


@pytest.mark.skipif(os.name == "nt", reason="needs signals")
@pytest.mark.parametrize("stop", [signal.SIGKILL, signal.SIGINT], ids=["kill", "ctrl-c"])
def test_resume_after_a_kill_asks_only_what_is_missing(tmp_path, stop):
    with FakeChatServer(lambda body: time.sleep(0.01) or body["messages"][0]["content"].upper()) as server:
        command = [sys.executable, "-c", RUN, server.base_url, str(tmp_path), str(COUNT), str(CONCURRENCY)]
        child = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        wait_until(lambda: len(server.requests) >= 20)
        child.send_signal(stop)
        begun = time.monotonic()
        child.wait(timeout=10)
        assert time.monotonic() - begun < 1.0
        assert child.returncode == -stop
        asked = len(server.requests)
        assert asked < COUNT
        kept = [json.loads(path.read_text()) for path in tmp_path.glob("*/[!.]*.json")]  # each of them is whole
        assert asked - CONCURRENCY <= len(kept) <= asked

        with openai_chat(server.base_url, "m", cache=tmp_path, concurrency=CONCURRENCY) as model:
            replies = model.chat_many([f"question {i}" for i in range(COUNT)])
        assert [reply.text for reply in replies] == [f"QUESTION {i}" for i in range(COUNT)]
        assert len(server.requests) - asked == COUNT - len(kept) == model.usage.calls
        assert model.usage.cache_hits == len(kept)


def test_ctrl_c_of_a_waiting_run_ends_it_at_once(tmp_path):
    with FakeChatServer(lambda body: time.sleep(3) or "late") as server:
        command = [sys.executable, "-c", RUN, server.base_url, str(tmp_path), "4", "2"]
        child = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        wait_until(lambda: len(server.requests) == 2)
        begun = time.monotonic()
        child.send_signal(signal.SIGINT)
        child.wait(timeout=10)
        assert time.monotonic() - begun < 1.0
