"""The command line: the answer on stdout, the user's mistakes in one line, whole outputs, resume."""

import gzip
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sanctionspairs_records import make

from papers_shared.chat.testing import FakeChatServer
from sanctionspairs.cli import app, matchpairs_script
from sanctionspairs.io import write_pairs
from sanctionspairs.prompts import Prompt, Registry
from sanctionspairs.records import Pair
from sanctionspairs.review import Queue


def run(capsys, script, *arguments):
    with pytest.raises(SystemExit) as stop:
        script([*map(str, arguments)])
    return stop.value.code, *capsys.readouterr()


@pytest.fixture(scope="module")
def pairs_file(small, tmp_path_factory):
    return write_pairs(tmp_path_factory.mktemp("pairs") / "pairs.jsonl.gz", small.pairs)


@pytest.fixture(scope="module")
def finished(pairs_file, tmp_path_factory):
    """One run of the main verb with two matchers."""
    out = tmp_path_factory.mktemp("run") / "out"
    with pytest.raises(SystemExit) as stop:
        matchpairs_script([str(pairs_file), "--matcher", "regression-v1", "--matcher", "fuzzy", "--out", str(out), "-q",
                           "--target-error", "0.2"])  # fmt: skip
    assert stop.value.code in (0, None)
    return out


def test_a_run_leaves_everything_it_says(finished, small):
    report = json.loads((finished / "report.json").read_text())
    assert set(report["matchers"]) == {"regression-v1", "fuzzy"}
    assert report["split"] == {"how": "stratified sample", "train": 0, "dev": 160, "test": 640}
    assert report["matchers"]["regression-v1"]["f1_low"] < report["matchers"]["regression-v1"]["f1"]
    assert report["paired"]["regression-v1 / fuzzy"]["p"] <= 1
    assert report["read"]["judgements"]["positive"] == sum(pair.label for pair in small.pairs)
    frame = pd.read_parquet(finished / "scores.parquet")
    assert len(frame) == 640
    assert {"left_id", "judgement", "tags", "regression-v1 score", "fuzzy decision", "ofac"} <= set(frame.columns)
    assert set(frame["regression-v1 decision"]) <= {-1, 0, 1}
    for name in ("pr_curve.png", "risk_coverage.png", "tags.png"):
        assert (finished / name).stat().st_size > 5000
    assert len(Queue(finished / "queue.jsonl").items) == report["queue"] > 0


@pytest.mark.needs("chromium")
def test_the_report_opens_in_chromium_and_names_errors_and_the_band(finished, tmp_path):
    import shutil

    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport={"width": 1200, "height": 900})
        page.set_default_timeout(30_000)
        page.goto((finished / "report.html").as_uri())
        text = page.inner_text("body")
        assert "Errors by kind" in text
        assert "homonym" in text
        assert "abstain between" in text or "review everything" in text
        broken = page.evaluate("[...document.images].filter(i => !i.complete || !i.naturalWidth).length")
        assert broken == 0
        page.screenshot(path=tmp_path / "report.png", full_page=True)
        browser.close()


def test_a_finished_run_is_not_overwritten_and_resumes_from_its_scores(capsys, finished, pairs_file):
    again = [
        "matchpairs",
        pairs_file,
        "--matcher",
        "regression-v1",
        "--matcher",
        "fuzzy",
        "--out",
        finished,
        "-q",
        "--target-error",
        0.2,
    ]
    code, _, err = run(capsys, app, *again)
    assert code == 2
    assert "--resume" in err
    stamp = (finished / "scores-fuzzy.npz").stat().st_mtime_ns
    code, out, _ = run(capsys, app, *again, "--resume", "--json")
    assert code == 0
    assert (finished / "scores-fuzzy.npz").stat().st_mtime_ns == stamp
    assert json.loads(out)["matchers"]["fuzzy"]["n"] == 640
    code, _, err = run(capsys, app, *again, "--resume", "--symmetric")
    assert code == 2
    assert "symmetric" in err


def test_a_killed_run_goes_on_with_the_scores_it_has(capsys, small, tmp_path):
    names = [option for name in ("regression-v1", "er-unstable") for option in ("--matcher", name)]
    few = write_pairs(tmp_path / "pairs.jsonl", small.pairs[:160])  # the second matcher still takes half a second
    arguments = ["matchpairs", str(few), *names, "--no-ofac", "--out", str(tmp_path / "run"), "-q"]
    command = [sys.executable, "-W", "ignore", "-c", "from sanctionspairs.cli import app; app()", *arguments]
    process = subprocess.Popen(command, env=os.environ | {"PYTHONWARNINGS": "ignore"})
    first = tmp_path / "run" / "scores-regression-v1.npz"
    deadline = time.monotonic() + 240
    while not first.exists() and time.monotonic() < deadline:
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (tmp_path / "run" / "report.json").exists()
    stamp = first.stat().st_mtime_ns
    code, _, err = run(capsys, app, *arguments, "--resume")
    assert code == 0, err
    assert first.stat().st_mtime_ns == stamp
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert set(report["matchers"]) == {"regression-v1", "er-unstable"}


def test_the_tables_name_errors_by_kind_and_the_band(capsys, pairs_file, tmp_path, small):
    wanted = str(small.pairs[0].left.id)
    code, out, err = run(
        capsys,
        matchpairs_script,
        pairs_file,
        "--matcher",
        "regression-v1",
        "--explain",
        wanted,
        "--out",
        tmp_path / "o",
    )
    assert code == 0, err
    for text in ("errors by kind", "dob_conflict", "always yes: F1 0.8", "name_match", "intercept", "report.html"):
        assert text in out
    assert "abstain between" in out or "review everything" in out


def test_trained_matchers_get_an_entity_disjoint_split(capsys, pairs_file, tmp_path):
    names = ["--matcher", "regression-v1-refit", "--matcher", "cascade", "--inner", "regression-v1"]
    options = ["--out", tmp_path / "o", "--no-ofac", "--queue", 0, "--json", "-q"]
    code, out, err = run(capsys, app, "matchpairs", pairs_file, *names, *options)
    assert code == 0, err
    answer = json.loads(out)
    assert answer["split"]["how"] == "entity-disjoint 70/5/25"
    assert answer["split"]["train"] > 500
    assert not (tmp_path / "o" / "queue.jsonl").exists()


def one_pair(**left):
    record = {"schema": "Person", "properties": {"name": ["A"]}}
    return json.dumps({"left": {"id": "l", **record, **left}, "right": {"id": "r", **record}, "judgement": "positive"})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"{broken\n", "line 1: not JSON"),
        (one_pair(schema="Foo").encode(), "entity 'l' has unknown schema 'Foo'"),
        ("\n".join(one_pair(id=f"l{i}") for i in range(20)).encode(), "threshold cannot be tuned: all"),
        (gzip.compress(one_pair().encode() * 500)[:60], "cut or damaged at byte 60"),
        (b"", "too few"),
    ],
    ids=["broken", "schema", "one class", "cut gzip", "empty"],
)
def test_bad_input_is_one_line_and_exit_2(capsys, tmp_path, text, says):
    path = tmp_path / "pairs.json"
    path.write_bytes(text)
    code, out, err = run(capsys, app, "matchpairs", path, "--matcher", "regression-v1", "--out", tmp_path / "o", "-q")
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert says in err
    assert err.count("\n") == 1


def test_skipped_lines_are_counted_and_too_many_exit_3(capsys, tmp_path, small):
    lines = [json.dumps(pair.to_dict()) for pair in small.pairs[:300]]
    few, many = tmp_path / "few.json", tmp_path / "many.json"
    few.write_text("\n".join([*lines, "broken"]))
    many.write_text("\n".join([*lines, *["broken"] * 9]))
    options = ["--matcher", "regression-v1", "--no-ofac", "--queue", 0, "-q", "--skip-bad"]
    code, out, _ = run(capsys, app, "matchpairs", few, "--out", tmp_path / "a", *options)
    assert code == 0
    assert "1 lines were skipped" in out
    code, _, err = run(capsys, app, "matchpairs", many, "--out", tmp_path / "b", *options)
    assert code == 3
    assert "9 of 309 lines" in err
    skipped = json.loads((tmp_path / "b" / "report.json").read_text())["read"]["skipped"]
    assert [row["line"] for row in skipped] == list(range(301, 310))


def test_pairs_decided_by_form_are_tagged_and_kept_out_of_tuning(capsys, tmp_path, small):
    person, ship = make("p", "Person", name="Sea Star"), make("v", "Vessel", name="Sea Star")
    odd = [Pair(person, ship, "negative"), Pair(person, person, "positive")]
    path = write_pairs(tmp_path / "pairs.jsonl", [*small.pairs[:300], *odd * 5])
    code, _out, err = run(
        capsys, app, "matchpairs", path, "--matcher", "regression-v1", "--out", tmp_path / "o", "-q", "--json"
    )
    assert code == 0, err
    frame = pd.read_parquet(tmp_path / "o" / "scores.parquet")
    assert (frame[frame.tags == "incompatible"]["regression-v1 score"] == 0).all()
    assert {"incompatible", "self_pair"} <= set(frame.tags)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["matchpairs", "--matcher", "magic"], "no matcher 'magic'; choose one of"),
        (["matchpairs", "none.json"], "cannot read none.json"),
        (["matchpairs", "--resume"], "--resume needs --out"),
        (["matchpairs", "x.json", "--demo"], "not both"),
        (["matchpairs", "--price", "cheap"], "want two numbers"),
        (["review", "none.jsonl"], "cannot open the queue"),
        (["dedupe", "--cut", "1.5"], "--cut 1.5"),
        (["dedupe", "none.json"], "cannot read none.json"),
        (["prompts", "none"], "no saved prompt 'none'"),
        (["optimise", "--model", "smollm2"], "names no model on a server"),
    ],
)
def test_wrong_options_are_one_line(capsys, tmp_path, monkeypatch, arguments, says):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, app, *arguments, "-q")
    assert (code, out) == (2, "")
    assert says in err
    assert err.count("\n") == 1


def test_a_language_model_runs_from_the_command_line(capsys, tmp_path, small):
    path = write_pairs(tmp_path / "pairs.jsonl", small.pairs[:60])

    def answer(body):
        names = [line for line in body["messages"][-1]["content"].splitlines() if line.startswith("Names:")]
        kind = "negative" if len(names) == 2 and names[0] != names[1] else "positive"
        return json.dumps({"classification": kind, "confidence": "high", "reasoning": "x"})

    Registry(tmp_path / "prompts").save(Prompt("mine", "m", "Judge."))
    with FakeChatServer(answer) as server:
        model = ["--matcher", "llm", "--model", "openai:m", "--base-url", server.base_url, "--no-ofac", "-q"]
        code, out, err = run(capsys, app, "matchpairs", path, *model, "--out", tmp_path / "a", "--json")
        assert code == 0, err
        assert json.loads(out)["matchers"]["llm-m"]["cost"] > 0
        asked = len(server.requests)
        assert 30 < asked <= 60  # records without any of the fields shown give equal questions, asked once
        code, out, err = run(
            capsys,
            app,
            "matchpairs",
            path,
            *model,
            "--load-prompt",
            "mine",
            "--registry",
            tmp_path / "prompts",
            "--out",
            tmp_path / "b",
        )
        assert code == 0, err
        assert server.requests[-1]["messages"][0]["content"] == "Judge."
        code, out, err = run(
            capsys, app, "matchpairs", path, *model, "--max-cost", 0.03, "--price", "5,5", "--out", tmp_path / "c"
        )
        assert code == 0, err
        assert "partial: the cost limit was reached" in out


def test_whole_lists_are_deduplicated_reviewed_and_deduplicated_again(capsys, tmp_path, small):
    path = tmp_path / "list.json"
    records = small.entities[:120]
    path.write_text("\n".join(json.dumps(record.to_dict()) for record in records))
    code, out, err = run(capsys, app, "dedupe", path, "--out", tmp_path / "d", "--json", "-q")
    assert code == 0, err
    answer = json.loads(out)
    assert answer["records"] == 120 > answer["entities"]
    clusters = pd.read_csv(tmp_path / "d" / "clusters.csv")
    truth = np.unique([small.truth[name] for name in clusters["id"]], return_inverse=True)[1]
    from sanctionspairs.cluster import bcubed

    assert bcubed(clusters["cluster"].to_numpy(), truth)[2] > 0.85
    queue = Queue(tmp_path / "d" / "queue.jsonl")
    together = [(i, j) for i in range(len(clusters)) for j in range(i) if clusters.cluster[i] == clusters.cluster[j]]
    known = {frozenset((item.left["id"], item.right["id"])): item.number for item in queue.items}
    chosen = next(
        known[frozenset((clusters.id[i], clusters.id[j]))]
        for i, j in together
        if frozenset((clusters.id[i], clusters.id[j])) in known
    )
    queue.decide(chosen, "negative", "me")
    code, out, _ = run(capsys, app, "review", tmp_path / "d" / "queue.jsonl", "--export", tmp_path / "edges.ijson")
    assert "1 decisions" in out
    code, out, err = run(
        capsys, app, "dedupe", path, "--edges", tmp_path / "edges.ijson", "--out", tmp_path / "e", "-q", "--json"
    )
    assert code == 0, err
    again = pd.read_csv(tmp_path / "e" / "clusters.csv").set_index("id")["cluster"]
    item = queue.items[chosen]
    assert again[item.left["id"]] != again[item.right["id"]]
    assert json.loads(out)["cannot-links broken"] == 0
    double = tmp_path / "double.json"
    double.write_text("\n".join([json.dumps(records[0].to_dict())] * 2))
    assert "two records have the id" in run(capsys, app, "dedupe", double, "--out", tmp_path / "f", "-q")[2]


def test_the_small_commands(capsys, tmp_path, pairs_file, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, _ = run(capsys, app, "stats", pairs_file, "--json", "-q")
    assert json.loads(out)["pairs"] == 800
    code, out, err = run(capsys, app, "block", "--first", 150, "--json", "-q")
    assert code == 0, err
    assert json.loads(out)["completeness"] > 0.97
    assert len(pd.read_parquet("candidates.parquet")) == json.loads(out)["candidates"]
    assert run(capsys, app, "block", "--first", 150, "-q")[0] == 2
    assert run(capsys, app, "block", "--first", 50, "--partitions", 2, "--out", "parts.parquet", "-q")[0] == 0
    assert len(list(Path("parts").glob("*.parquet"))) == 2
    code, out, _ = run(capsys, app, "bench", "--pairs", 15, "--json", "-q")
    assert json.loads(out)["largest difference"] <= 1e-12
    code, out, _ = run(capsys, app, "prompts", "-q")
    assert "no prompt is saved" in out
    Registry("prompts").save(Prompt("mine", "m", "Judge.", provenance={"dev_f1": 0.9}))
    assert "0.9" in run(capsys, app, "prompts", "-q")[1]
    assert "Judge." in run(capsys, app, "prompts", "mine", "-q")[1]
    assert run(capsys, app, "demo-data", "--pairs", 60, "--out", "sim", "-q")[0] == 0
    assert run(capsys, app, "stats", "sim/sanctions_sim.jsonl.gz", "-q")[0] == 0


def test_the_readme_snippet_runs(capsys):
    readme = (Path(__file__).parent.parent / "README.md").read_text()
    exec(readme.split("```python\n")[1].split("```")[0], {})
    assert capsys.readouterr().out.startswith("regression-v1: F1 0.9")


def test_the_lock_takes_the_prebuilt_icu_and_no_compiler():
    lock = next((p / "uv.lock" for p in Path(__file__).resolve().parents if (p / "uv.lock").exists()), None)
    if lock is None:
        pytest.skip("the lock is part of the workspace")
    names = [line.split('"')[1].lower() for line in lock.read_text().splitlines() if line.startswith("name = ")]
    assert "pyicu-wheels" in names
    assert "pyicu" not in names
