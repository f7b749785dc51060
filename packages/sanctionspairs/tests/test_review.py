"""The queue: worst first, nothing lost, everything can be taken back, decisions travel as resolver edges."""

import io
import json
import os
import signal
import subprocess
import sys
import time

import pytest
from nomenklatura.judgement import Judgement
from nomenklatura.resolver.edge import Edge
from rich.console import Console

from sanctionspairs.errors import SanctionsPairsError
from sanctionspairs.review import Queue, expected_harm, make_queue, read_edges
from sanctionspairs.terminal import review


def record(id, name="Ivan", **properties):
    listed = {key: [value] for key, value in properties.items()}
    return {"id": id, "caption": name, "schema": "Person", "datasets": ["s"], "properties": {"name": [name], **listed}}


ITEMS = [
    {"left": record("a"), "right": record("b"), "p": 0.9, "reasons": {"name": 2.0}, "tags": ["sparse"]},
    {"left": record("c"), "right": record("d"), "p": 0.55, "reasons": {"name": 0.1}},
    {
        "left": record("a"),
        "right": record("e"),
        "p": 0.8,
        "left_cluster": ["a", "a2", "a3"],
        "right_cluster": ["e", "e2"],
    },
]


@pytest.fixture
def path(tmp_path):
    return make_queue(tmp_path / "queue.jsonl", ITEMS)


def test_the_order_is_expected_harm(path):
    queue = Queue(path)
    assert expected_harm(0.8, 3, 2, 1.0) == pytest.approx(0.2 * 6)
    assert [item.number for item in queue.pending()] == [2, 1, 0]
    assert queue.harm(queue.items[2]) == pytest.approx(1.2)
    assert Queue(path, cost=10).harm(queue.items[2]) == pytest.approx(12)


def test_a_merge_makes_pairs_of_its_cluster_matter_more(path):
    queue = Queue(path)
    before = queue.harm(queue.items[0])
    queue.decide(2, "positive", "me")
    assert queue.harm(queue.items[0]) == pytest.approx(0.1 * 5)
    assert before == pytest.approx(0.1 * 3)
    queue.undo("me")
    assert queue.harm(queue.items[0]) == pytest.approx(before)


def test_decisions_are_only_appended_and_undo_is_one_more_line(path):
    start = path.read_text()
    queue = Queue(path)
    queue.decide(1, "negative", "anna")
    queue.decide(0, "unsure", "ben")
    assert queue.undo("ben").item == 0
    text = path.read_text()
    assert text.startswith(start)
    kinds = [json.loads(line)["type"] for line in text.splitlines()[3:]]
    assert kinds == ["decision", "decision", "undo"]
    again = Queue(path)
    assert {number: d.judgement for number, d in again.decided.items()} == {1: "negative"}
    decision = again.decided[1]
    assert (decision.user, decision.score, decision.reasons) == ("anna", 0.55, {"name": 0.1})
    assert decision.time.startswith("20")
    assert [item.number for item in again.pending()] == [2, 0]
    assert again.undo().item == 1
    assert again.undo() is None
    assert path.read_text().count('"undo"') == 2


def test_two_people_at_one_queue_see_each_others_decisions(path):
    one, two = Queue(path), Queue(path)
    one.decide(2, "positive", "one")
    two.decide(1, "negative", "two")
    assert {0} == {item.number for item in two.pending()}
    assert Queue(path).decided.keys() == {1, 2}


def test_a_line_torn_by_a_kill_loses_nothing_else(path):
    queue = Queue(path)
    queue.decide(1, "negative", "me")
    with path.open("a") as file:
        file.write('{"type": "decision", "item": 0, "judg')
    again = Queue(path)
    assert again.decided.keys() == {1}
    again.decide(0, "positive", "me")
    assert Queue(path).decided.keys() == {0, 1}


def test_a_killed_review_keeps_every_decision(path):
    code = "import sys; from sanctionspairs.cli import app; app()"
    environment = os.environ | {"PYTHONWARNINGS": "ignore"}
    arguments = [sys.executable, "-c", code, "review", str(path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL, "text": True}
    with subprocess.Popen(arguments, env=environment, **pipes) as process:
        process.stdin.write("y\n")
        process.stdin.flush()
        deadline = time.monotonic() + 240
        while '"decision"' not in path.read_text() and time.monotonic() < deadline:
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    assert Queue(path).decided[2].judgement == "positive"


def test_edges_are_nomenklaturas_and_come_back(path, tmp_path):
    queue = Queue(path)
    queue.decide(2, "positive", "anna")
    queue.decide(1, "negative", "ben")
    assert queue.export_edges(tmp_path / "edges.ijson") == 2
    edges = [Edge.from_line(line) for line in (tmp_path / "edges.ijson").read_text().splitlines()]
    assert {(frozenset((e.target.id, e.source.id)), e.judgement, e.user) for e in edges} == {
        (frozenset("ae"), Judgement.POSITIVE, "anna"),
        (frozenset("cd"), Judgement.NEGATIVE, "ben"),
    }
    fresh = Queue(make_queue(tmp_path / "other.jsonl", ITEMS))
    assert fresh.import_edges(tmp_path / "edges.ijson") == 2
    assert {n: d.judgement for n, d in fresh.decided.items()} == {2: "positive", 1: "negative"}
    (tmp_path / "bad.ijson").write_text('["a", "b"]\n')
    with pytest.raises(SanctionsPairsError, match="line 1: not a resolver edge"):
        read_edges(tmp_path / "bad.ijson")


def test_the_resolver_itself_reads_the_edges(path, tmp_path):
    from nomenklatura.db import Session
    from nomenklatura.resolver import Resolver
    from sqlalchemy import create_engine

    queue = Queue(path)
    queue.decide(2, "positive", "anna")
    queue.export_edges(tmp_path / "edges.ijson")
    engine = create_engine(f"sqlite:///{tmp_path / 'resolver.db'}")
    session = Session(engine)
    resolver = Resolver(session, create=True)
    resolver.load(tmp_path / "edges.ijson")
    resolver.load_into_memory()
    assert resolver.get_linker().get_canonical("a") == resolver.get_linker().get_canonical("e")
    session.close()
    engine.dispose()


def test_what_is_no_queue_is_refused(tmp_path, path):
    with pytest.raises(SanctionsPairsError, match="cannot open the queue"):
        Queue(tmp_path / "none.jsonl")
    (tmp_path / "empty.jsonl").write_text("")
    with pytest.raises(SanctionsPairsError, match="holds no pair"):
        Queue(tmp_path / "empty.jsonl")
    (tmp_path / "other.jsonl").write_text('{"type": "item", "left": {}}\n')
    with pytest.raises(SanctionsPairsError, match="line 1"):
        Queue(tmp_path / "other.jsonl")
    with pytest.raises(SanctionsPairsError, match="no decision"):
        Queue(path).decide(0, "maybe")
    with pytest.raises(SanctionsPairsError, match="no pair 9"):
        Queue(path).decide(9, "positive")


def test_the_terminal_shows_both_records_and_takes_keys(path):
    keys = iter(["y", "x", "n", "z", "s", "u", "q"])
    out = Console(file=io.StringIO(), width=120, force_terminal=False)
    done = review(Queue(path), user="me", key=lambda: next(keys), console=out)
    text = out.file.getvalue()
    assert done == {"decided": 3, "undone": 1, "left": 1}
    assert {n: d.judgement for n, d in Queue(path).decided.items()} == {2: "positive", 1: "unsure"}
    assert "expected harm 1.20" in text
    assert "took back negative" in text
    assert "why: name +0.10" in text
    assert "kind: sparse" in text
