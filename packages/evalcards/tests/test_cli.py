"""The command line: the answer on stdout, one line for what is wrong, exit 3 where rows failed, nothing overwritten."""

import json
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from evalcards import data
from evalcards.cli import app, evalcard_script
from evalcards.cli_common import embedded
from evalcards.cli_sources import Sources
from evalcards.generator import generate
from evalcards.samples import csv_file, eee_file, lm_eval_file
from evalcards.schema import read_log
from evalcards.store import Store


@pytest.fixture(autouse=True)
def small_corpus(monkeypatch):
    """Let the embedded default be small, so that each call takes no seconds."""
    monkeypatch.setattr(data, "made_up", lambda seed=0: generate(20, 14, 80, seed))


def run(capsys, script, *arguments):
    with pytest.raises(SystemExit) as stop:
        script([*map(str, arguments)])
    return stop.value.code, *capsys.readouterr()


def test_the_embedded_default_needs_nothing(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, _ = run(capsys, evalcard_script)
    assert code == 0
    for word in (
        "reproducibility",
        "completeness",
        "provenance",
        "comparability",
        "SmolLM2-135M-Instruct",
        "missing temperature",
    ):
        assert word in out
    folder = tmp_path / "evalcard-report"
    stem = "model-huggingfacetb-smollm2-135m-instruct"
    assert {p.name for p in folder.iterdir()} >= {
        f"{stem}.html", f"{stem}.md", f"{stem}.json", "overview.png", "report.json", "failures.csv", "manifest.json",
    }  # fmt: skip
    assert len(json.loads((folder / f"{stem}.json").read_text())["results"]) == 40
    assert json.loads((folder / "report.json").read_text())["rollup"]["overall"]["rows"] == 120
    assert (
        run(capsys, evalcard_script, "--benchmark", "MMLU", "--mode", "policy", "-q")[0] == 0
    )  # a card without results
    assert (tmp_path / "evalcard-report-2" / "benchmark-mmlu.html").exists()


def test_ones_own_files_give_cards_a_failure_report_and_exit_3(capsys, tmp_path):
    path, results, bad = lm_eval_file(tmp_path)
    out = tmp_path / "out"
    arguments = (
        evalcard_script,
        path,
        "--model-id",
        "example/seven",
        "--organisation",
        "Us",
        "--out",
        out,
        "--json",
        "-q",
    )
    code, text, _ = run(capsys, *arguments)
    assert code == 3
    answer = json.loads(text)
    assert answer["rollup"]["overall"]["rows"] == results - bad
    assert len(answer["failures"]) == bad
    assert (out / "failures.csv").read_text().count("\n") == bad + 1
    assert (out / "model-example-seven.html").exists()
    code, _, err = run(capsys, *arguments)
    assert code == 2
    assert "--force" in err
    assert run(capsys, *arguments, "--force")[0] == 3


def test_a_clean_file_exits_0(capsys, tmp_path, record):
    (tmp_path / "a.json").write_text(json.dumps(record(0.5, arguments={"temperature": 0, "max_tokens": 9})))
    code, out, _ = run(capsys, evalcard_script, tmp_path / "a.json", "--out", tmp_path / "o")
    assert code == 0
    assert "complete" in out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["no.json"], "no such file"),
        (["--mode", "fun"], "research or policy"),
        (["--model", "nobody/none"], "no results of a model"),
        (["--profile", "best"], "no reproducibility profile"),
        (["--threshold-factor", "0"], "positive finite"),
        (["--relationship", "friend"], "want one of"),
        (["--field-set", "none.json"], "no such file"),
        (["http://127.0.0.1:9/x.parquet"], "--remote"),
        (["--benchmark-card", "none.json"], "no such file"),
    ],
)
def test_wrong_input_is_one_line_and_exit_2(capsys, tmp_path, monkeypatch, arguments, says):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, evalcard_script, "-q", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert says in err
    assert err.count("\n") == 1


def test_import_signals_snapshot_diff_compare_export(capsys, tmp_path, record):
    store = tmp_path / "cards.duckdb"
    for name, organisation, score, top_k in (("a", "A", 0.5, 1), ("b", "B", 0.9, 2)):
        (tmp_path / f"{name}.json").write_text(
            json.dumps(
                record(
                    score,
                    identity=name,
                    organisation=organisation,
                    arguments={"temperature": 0, "max_tokens": 8, "top_k": top_k},
                )
            )
        )
    assert run(capsys, app, "import", tmp_path / "a.json", "--store", store)[0] == 0
    assert run(capsys, app, "snapshot", "one", "--store", store)[0] == 0
    code, out, _ = run(
        capsys, app, "import", tmp_path / "a.json", tmp_path / "b.json", "--store", store, "--json", "-q"
    )
    assert code == 0
    assert (json.loads(out)["skipped"], json.loads(out)["rows"]) == (1, 1)
    assert run(capsys, app, "snapshot", "two", "--store", store)[0] == 0
    code, out, _ = run(capsys, app, "diff", "one", "two", "--store", store, "--json")
    assert code == 0
    assert len(json.loads(out)["added"]) == 1
    code, out, _ = run(capsys, app, "signals", "--store", store, "--json", "--significance")
    assert json.loads(out)["overall"]["comparability"]["cross_party_divergence"] == {"count": 1, "of": 1, "rate": 1}
    code, out, _ = run(
        capsys, app, "compare", "example/one", "example__one", "--on", "MMLU", "--store", store, "--json"
    )
    assert code == 0
    assert json.loads(out)[0]["verdict"] == "comparable"  # a row with itself
    code, out, _ = run(
        capsys,
        app,
        "export",
        "--parquet",
        tmp_path / "tables",
        "--static",
        tmp_path / "site",
        "--store",
        store,
        "--parts",
        "2",
    )
    assert code == 0
    assert (tmp_path / "tables" / "results" / "part=1" / "results.parquet").exists()
    assert "example/one" in (tmp_path / "site" / "index.html").read_text()
    assert (tmp_path / "site" / "model-example-one.html").exists()
    assert run(capsys, app, "snapshot", "one", "--store", store)[0] == 2
    assert run(capsys, app, "diff", "one", "three", "--store", store)[0] == 2
    assert run(capsys, app, "signals", "--store", tmp_path / "none.duckdb")[0] == 2
    assert run(capsys, app, "export", "--store", store)[0] == 2


def test_a_run_without_inputs_keeps_the_corpus_in_a_new_store_and_reports_one_that_is_there(capsys, tmp_path):
    store = tmp_path / "new.duckdb"
    code, out, _ = run(capsys, evalcard_script, "--store", store, "--out", tmp_path / "a", "--profile", "slots", "-q")
    assert code == 0
    assert "120 results" in out
    assert "decoding missing" in out
    code, out, _ = run(capsys, app, "signals", "--store", store, "--json", "-q")
    assert json.loads(out)["overall"]["rows"] == 120
    with Sources().open_store(store, embedded) as held:  # a store that is there is opened, and nothing is added
        assert held.fetch("SELECT count(*) FROM results") == [(120,)]


def test_the_failure_report_stands_beside_the_store_and_says_what_is_still_missing(capsys, tmp_path, record):
    (tmp_path / "a.json").write_text('{"a": NaN}')
    store = tmp_path / "s.duckdb"
    assert run(capsys, app, "import", tmp_path / "a.json", "--store", store)[0] == 3
    assert "bare NaN" in (tmp_path / "s.failures.csv").read_text()
    (tmp_path / "a.json").write_text(json.dumps(record()))
    assert run(capsys, app, "import", tmp_path / "a.json", "--store", store)[0] == 0
    assert "NaN" not in (tmp_path / "s.failures.csv").read_text()


def test_csv_and_formats_can_be_named(capsys, tmp_path):
    path, _, _ = csv_file(tmp_path)
    code, _, err = run(
        capsys,
        app,
        "import",
        path,
        "--store",
        tmp_path / "s.duckdb",
        "--mapping",
        tmp_path / "board.yaml",
        "--failures",
        tmp_path / "report.csv",
    )
    assert code == 3
    assert "4 results found = 3 rows + 1 failed" in err
    assert "seven" in (tmp_path / "report.csv").read_text()
    code, _, err = run(capsys, app, "import", path, "--store", tmp_path / "t.duckdb", "--format", "xml")
    assert code == 2
    assert "--format xml: want one of eee, lm_eval" in err
    assert not (tmp_path / "t.duckdb").exists()


def test_validate_says_where(capsys, tmp_path, record):
    good, odd, bad = (tmp_path / f"{name}.json" for name in ("good", "odd", "bad"))
    good.write_text(json.dumps(record(0.5)))
    odd.write_text(json.dumps(record(73.4, metric={"min_score": 0.0, "max_score": 1.0})))
    bad.write_text('{"a": NaN}')
    assert run(capsys, app, "validate", good)[:2] == (0, "1 file, nothing to say\n")
    code, out, _ = run(capsys, app, "validate", good, odd)
    assert code == 0
    assert "percent under proportion bounds" in out
    code, out, _ = run(capsys, app, "validate", bad, "--json")
    assert code == 3
    assert "bad.json:1:7" in json.loads(out)[0]["message"]


def test_field_set_prints_and_checks(capsys, tmp_path):
    code, out, _ = run(capsys, app, "field-set", "--json")
    assert code == 0
    assert len(json.loads(out)["fields"]) == 28
    (tmp_path / "f.json").write_text("{}")
    assert run(capsys, app, "field-set", tmp_path / "f.json")[0] == 2


def test_watch_imports_what_appears(capsys, tmp_path):
    eee_file(tmp_path)
    code, _, err = run(
        capsys, app, "watch", tmp_path, "--store", tmp_path / "s.duckdb", "--rounds", "2", "--seconds", "0.1"
    )
    assert code == 3
    assert "2 results found = 1 row + 1 failed" in err
    assert run(capsys, app, "watch", tmp_path / "none")[0] == 2


def test_monitor_serves_until_interrupted(tmp_path, record):
    store = tmp_path / "s.duckdb"
    with Store(store) as held:
        held.add([read_log(record(0.5))])
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    code = "from evalcards.cli import app; app()"
    command = [sys.executable, "-c", code, "monitor", "--store", store, "--serve", address]
    process = subprocess.Popen([*map(str, command)], stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 90
        while True:
            try:
                page = urllib.request.urlopen(f"http://{address}/model/example__one", timeout=30).read().decode()
                break
            except OSError:
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.1)
        assert "example/one" in page
    finally:
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert "Traceback" not in err


def test_bench_prints_what_was_measured(capsys, monkeypatch):
    # The measurement itself is claim E6, which the claims smoke test runs.
    found = {"rows": 60, "files": 9, "wall_seconds": 2.0, "import_seconds": 1.0, "signal_seconds": 0.5,
             "largest_page": 7, "page_wall_seconds": [0.1, 0.2, 0.3], "peak_gb": 0.3}  # fmt: skip
    asked = []
    monkeypatch.setattr("evalcards.scale.measure", lambda *size: asked.append(size) or found)
    code, out, _ = run(capsys, app, "bench", "--rows", "60", "--json", "-q")
    assert code == 0
    assert asked == [(5498, 635, 60, 60, 0)]
    assert json.loads(out)["results"] == 60


def test_monitor_wants_an_address_that_is_free(capsys):
    assert run(capsys, app, "monitor", "--serve", "8777")[0] == 2
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, _, err = run(capsys, app, "monitor", "--serve", f"127.0.0.1:{taken.getsockname()[1]}")
    assert code == 2
    assert "in use" in err


def test_the_readmes_python_runs(capsys, tmp_path, monkeypatch):
    readme = (Path(__file__).parent.parent / "README.md").read_text()
    snippet = readme.split("```python\n")[1].split("```")[0]
    monkeypatch.chdir(tmp_path)
    exec(compile(snippet, "README.md", "exec"), {})
    assert "27 of 40 results are excused from decoding and length" in capsys.readouterr().out
    assert (tmp_path / "card.html").read_text().startswith("<!doctype html>")
