"""Importers on files of the real formats: what is read, what is reported, and that nothing gets lost on the way."""

import json
import os
import signal
import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import as_file, files

import pytest

from evalcards import data
from evalcards.errors import InputError
from evalcards.generator import generate
from evalcards.importers import Options, csv, detect, helm, hf_model_card, inspect, lm_eval, read_any
from evalcards.importing import import_files, import_remote, watch
from evalcards.samples import MAKERS, inspect_log_file, lm_eval_file
from evalcards.schema import read_log
from evalcards.store import Store


@pytest.mark.parametrize("name", list(MAKERS))
def test_found_is_rows_plus_failures_in_every_format(tmp_path, name):
    path, results, bad = MAKERS[name](tmp_path)
    mapping = tmp_path / "board.yaml" if name == "csv" else None
    assert detect(path) == name
    kind, found = read_any(path, mapping=mapping)
    assert kind == name
    assert (found.found, found.rows, found.failed) == (results, results - bad, bad)
    with Store(None) as store:
        report = (
            import_files(store, [tmp_path], mapping=mapping)
            if name != "csv"
            else import_files(store, [path], mapping=mapping)
        )
        assert sum(t.rows for t in store.triples()) == results - bad
        assert store.fetch("SELECT sum(n) FROM failures") == [(bad,)]
        assert (report.found, report.rows, report.failed) == (results, results - bad, bad)


def result(found, name, metric=None):
    return next(
        r for log in found.logs for r in log.document["evaluation_results"]
        if r["evaluation_name"] == name and metric in (None, r["metric_config"].get("metric_id"))
    )  # fmt: skip


def test_lm_eval_settings_errors_and_filters(tmp_path):
    found = lm_eval(lm_eval_file(tmp_path)[0])
    strict, flexible = (r for r in found.logs[0].document["evaluation_results"] if r["evaluation_name"] == "gsm8k")
    assert strict["generation_config"]["generation_args"] == {
        "temperature": 0.0, "top_p": 0.9, "max_tokens": 64, "prompt_template": "Q: {{q}}\nA:",
    }  # fmt: skip
    assert strict["score_details"]["uncertainty"] == {"num_samples": 1319, "standard_error": {"value": 0.013}}
    assert "standard_error" not in flexible["score_details"]["uncertainty"]  # "N/A"
    assert strict["metric_config"]["additional_details"]["filter"] == "strict-match"
    anatomy = result(found, "mmlu_anatomy")
    assert anatomy["generation_config"]["additional_details"]["output_type"] == "multiple_choice"
    assert "temperature" not in anatomy["generation_config"]["generation_args"]  # never made up
    assert any("no aggregate" in notice for notice in found.notices)
    with Store(None) as store:
        store.add(found.logs)
        paths = {t.path for t in store.triples() if t.benchmark == "gsm8k"}
    assert len(paths) == 2  # two filters are two protocols


def test_a_local_checkpoint_path_can_be_named_and_is_recorded(tmp_path):
    path = lm_eval_file(tmp_path)[0]
    info = lm_eval(path).logs[0].document["model_info"]
    assert info["id"] == "./checkpoints/run-7"
    assert "developer" not in info
    named = (
        lm_eval(path, Options(model_id="example/seven", organisation="Us", relationship="first_party")).logs[0].document
    )
    assert named["model_info"]["id"] == "example/seven"
    assert named["model_info"]["additional_details"]["reported_id"] == "./checkpoints/run-7"
    assert named["source_metadata"]["source_organization_name"] == "Us"


def test_a_copied_file_gives_the_same_record(tmp_path):
    path = lm_eval_file(tmp_path)[0]
    first = lm_eval(path).logs[0].document
    os.utime(path, (1, 1))
    assert lm_eval(path).logs[0].document == first


def test_helm_slices_perturbations_and_bookkeeping(tmp_path):
    found = helm(MAKERS["helm"](tmp_path)[0])
    slices = [r["metric_config"]["additional_details"]["slice"] for r in found.logs[0].document["evaluation_results"]]
    assert slices == ["subject=anatomy", "subject=anatomy", "subject=anatomy, robustness (worst)"]
    one = found.logs[0].document["evaluation_results"][0]
    assert one["generation_config"]["generation_args"]["top_p"] == 1
    assert one["score_details"]["uncertainty"]["num_samples"] == 3
    assert one["metric_config"]["additional_details"]["method"] == "multiple_choice_joint"
    assert found.notices[0].endswith("2 statistics are bookkeeping, not results")
    samples = found.instances[found.logs[0].evaluation_id]
    assert [sample["evaluation"]["score"] for sample in samples] == [0.0, 1.0, 0.0]


@pytest.mark.parametrize("name", ["log.eval", "log.json"])
def test_inspect_logs_in_both_wrappings(tmp_path, name):
    path, _, _ = inspect_log_file(tmp_path, name=name)
    found = inspect(path)
    one = found.logs[0].document["evaluation_results"][0]
    arguments = one["generation_config"]["generation_args"]
    assert (arguments["temperature"], arguments["max_tokens"]) == (0.7, 2048)
    assert arguments["eval_limits"] == {"message_limit": 50}
    assert arguments["agentic_eval_config"]
    assert one["score_details"]["uncertainty"]["standard_error"] == {"value": 0.15}
    assert found.instances[found.logs[0].evaluation_id][0]["evaluation"]["is_correct"] is True
    with Store(None) as store:
        store.add_cards(data.benchmark_cards())
        store.add(found.logs)
        store.signals()
        assert store.triples()[0].benchmark == "gaia"
        assert store.fetch("SELECT missing, agentic FROM row_signals") == [(0, True)]


def test_an_unfinished_inspect_run_is_a_failure_not_an_empty_card(tmp_path):
    path = tmp_path / "log.json"
    path.write_text('{"version": 2, "status": "error", "eval": {"task": "t", "model": "m"}, "plan": {}, "samples": []}')
    found = inspect(path)
    assert found.logs == []
    assert "status is 'error'" in str(found.failures[0])


def test_a_model_card_is_its_authors_word_unless_it_names_another(tmp_path):
    found = hf_model_card(MAKERS["hf_model_card"](tmp_path)[0])
    own, board = found.logs
    assert own.source_metadata.evaluator_relationship == "first_party"
    assert own.document["evaluation_results"][0]["score_details"]["score"] == 61.2
    assert own.document["evaluation_results"][0]["metric_config"]["metric_unit"] == "percent"
    assert board.source_metadata.evaluator_relationship == "third_party"
    assert board.source_metadata.source_organization_name == "Example Board"
    assert "metric_unit" not in board.document["evaluation_results"][0]["metric_config"]  # 0.58 states none
    assert found.models[0].licence == "apache-2.0"


def test_csv_cells_and_constants(tmp_path):
    path, _, _ = MAKERS["csv"](tmp_path)
    found = csv(path, tmp_path / "board.yaml")
    assert [log.model_info.id for log in found.logs] == ["example/one", "example/three"]
    one = found.logs[0].document["evaluation_results"][0]
    assert one["score_details"]["score"] == 61.5
    assert one["generation_config"]["generation_args"] == {"temperature": 0}
    assert found.logs[0].source_metadata.source_organization_name == "Example Board"
    long = tmp_path / "long.csv"
    long.write_text("m,b,s,se\nexample/one,MMLU,0.5,0.01\nexample/one,ARC,0.4,\n")
    found = csv(
        long, {"model": "m", "benchmark": "b", "score": "s", "standard_error": "se", "metric": {"value": "accuracy"}}
    )
    assert [r["evaluation_name"] for log in found.logs for r in log.document["evaluation_results"]] == ["MMLU", "ARC"]


def test_eee_instances_stand_under_their_record(tmp_path, record):
    (tmp_path / "a.json").write_text(json.dumps(record()))
    line = {"schema_version": "0.3.0", "evaluation_id": "r1", "model_id": "example/one", "evaluation_name": "MMLU",
            "sample_id": "s", "evaluation": {"score": 1.0, "is_correct": True}}  # fmt: skip
    (tmp_path / "a_samples.jsonl").write_text(json.dumps(line) + "\n{\n" + json.dumps({"sample_id": "t"}) + "\n")
    with Store(None) as store:
        report = import_files(store, [tmp_path])
        assert len(report.failures) == 2
        assert store.fetch("SELECT sample_id, score FROM instances") == [("s", 1.0)]
        assert store.fetch("SELECT count(*) FROM instances JOIN logs USING (log_id)") == [(1,)]


def test_the_real_rows_are_forty_and_say_what_they_are():
    found = data.real_rows()
    assert (found.found, found.rows, found.failed) == (40, 40, 0)
    assert len(data.benchmark_cards()) == 16
    with Store(None) as store:
        store.add_models(data.registered_models())
        store.add_cards(data.benchmark_cards())
        store.add(found.logs, instances=found.instances)
        store.signals()
        assert {t.model for t in store.triples()} == {"HuggingFaceTB/SmolLM2-135M-Instruct"}
        rows = store.records("SELECT slots, slots_disclosed, slots_applicable FROM results")
        # Every likelihood task is excused from decoding and length; every run discloses the rest.
        assert sum(row["slots"][0] == "n" for row in rows) == 27
        mean = store.fetch("""SELECT avg(i.score) FROM instances i JOIN logs l USING (log_id)
            WHERE l.library = 'inspect_ai' AND i.evaluation_name = 'local_capitals_open' GROUP BY log_id ORDER BY 1""")
        reported = store.fetch("""SELECT score FROM results JOIN groups USING (group_id)
            WHERE benchmark = 'local-capitals' AND metric LIKE 'accuracy%' ORDER BY 1""")
        assert [m for (m,) in mean] == pytest.approx([s for (s,) in reported])


def files_of(folder, corpus):
    folder.mkdir()
    for number, document in enumerate(corpus.documents):
        (folder / f"{number}.json").write_text(json.dumps(document))
    return folder


KILLED = """
import sys, time
from pathlib import Path
from evalcards import importing
from evalcards.store import Store
read = importing.read_parts
def slow(*arguments, **named):
    time.sleep(0.01)
    return read(*arguments, **named)
importing.read_parts = slow
with Store(Path(sys.argv[1])) as store:
    importing.import_files(store, [sys.argv[2]], batch=20, progress=lambda done, of: print(done, flush=True))
"""


def test_a_killed_import_goes_on_and_loses_nothing(tmp_path):
    corpus = generate(40, 21, 250, seed=2)
    folder, path = files_of(tmp_path / "records", corpus), tmp_path / "cards.duckdb"
    process = subprocess.Popen([sys.executable, "-c", KILLED, path, folder], stdout=subprocess.PIPE, text=True)
    for line in process.stdout:
        if int(line) >= 50:
            break
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stdout.close()
    with Store(path) as store:
        done = store.fetch("SELECT count(*) FROM ledger")[0][0]
        assert 0 < done < len(corpus.documents)
        assert store.fetch("SELECT count(*) FROM logs")[0][0] == done  # whole batches only
        report = import_files(store, [folder])
        assert report.skipped == done
        assert report.files == len(corpus.documents) - done
        assert sum(t.rows for t in store.triples()) == 250
        assert import_files(store, [folder]).files == 0
        assert {log["evaluation_id"] for log in store.logs()} == {d["evaluation_id"] for d in corpus.documents}


def test_an_error_in_a_batch_leaves_the_store_as_it_was(corpus, monkeypatch):
    with Store(None) as store:
        store.add(corpus.logs()[:5])
        before = store.fetch("SELECT * FROM results ORDER BY row_id")

        def fail(*_):
            raise RuntimeError("disk on fire")

        monkeypatch.setattr(store, "_write_instances", fail)
        with pytest.raises(RuntimeError):
            store.add(corpus.logs()[5:10])
        monkeypatch.undo()
        assert store.fetch("SELECT * FROM results ORDER BY row_id") == before
        store.add(corpus.logs()[5:10])
        assert store.fetch("SELECT count(*) FROM logs") == [(10,)]


def test_a_file_that_only_failed_is_tried_again_and_reported_once(tmp_path):
    path, _, _ = MAKERS["csv"](tmp_path)
    with Store(None) as store:
        for _ in range(2):
            report = import_files(store, [path])
            assert (report.files, report.skipped, len(report.failures)) == (1, 0, 1)
        assert store.fetch("SELECT count(*) FROM failures") == [(1,)]
        report = import_files(store, [path], mapping=tmp_path / "board.yaml")
        assert (report.files, report.rows, report.failed) == (1, 3, 1)
        assert [reason for (reason,) in store.fetch("SELECT reason FROM failures")] == ["'seven' is not a number"]
        assert import_files(store, [path], mapping=tmp_path / "board.yaml").skipped == 1
        (tmp_path / "board.yaml").write_text("{model: Model, scores: [{column: GSM8K}]}")
        assert import_files(store, [path], mapping=tmp_path / "board.yaml").files == 1  # read another way


def test_samples_stand_under_their_results_and_are_no_files_of_their_own():
    with as_file(files("evalcards").joinpath("assets/real")) as folder, Store(None) as store:
        report = import_files(store, [folder])
        assert (report.files, report.rows, report.failures) == (6, 40, ())
        assert store.fetch("SELECT count(*) FROM instances WHERE evaluation_name = 'local_copying'")[0][0] == 24
        sample = next(folder.rglob("samples_*.jsonl"))
        assert "name the results_*.json" in str(import_files(store, [sample]).failures[0])


def test_remote_parquet_is_read_from_a_server(tmp_path, corpus):
    with Store(None) as store:
        store.add(corpus.logs()[:20])
        store.export(tmp_path / "out")
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path / "out"))
    handler.log_message = lambda *_: None
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    try:
        with Store(None) as store:
            assert import_remote(store, f"{address}/logs.parquet").logs == 20
            with pytest.raises(InputError, match=r"missing\.parquet"):
                import_remote(store, f"{address}/missing.parquet")
            with pytest.raises(InputError, match="over the cap"):
                import_remote(store, f"{address}/logs.parquet", Options(max_bytes=100))
            with pytest.raises(InputError, match="not a remote address"):
                import_remote(store, "ftp://x/logs.parquet")
    finally:
        server.shutdown()
        server.server_close()


def test_watch_takes_files_that_have_stopped_growing(tmp_path, record):
    steps = iter([
        lambda: (tmp_path / "a.json").write_text(json.dumps(record(identity="a"))),
        lambda: None,
        lambda: (tmp_path / "b.json").write_text(json.dumps(record(identity="b"))),
        lambda: None,
        lambda: None,
    ])  # fmt: skip
    (tmp_path / "bad.json").write_text("{")
    with Store(None) as store:
        reports = list(watch(store, tmp_path, rounds=6, sleep=lambda _: next(steps)()))
    assert [(report.rows, len(report.failures)) for report in reports] == [(0, 1), (1, 0), (1, 0)]


def test_a_mixed_folder_is_imported_file_by_file(tmp_path):
    for name, make in MAKERS.items():
        if name != "csv":
            (tmp_path / name).mkdir()
            make(tmp_path / name)
    with pytest.raises(InputError, match="no such file"):
        detect(tmp_path / "nothing")
    with Store(None) as store:
        report = import_files(store, [tmp_path])
        assert report.files == 5
        assert report.found == report.rows + report.failed == 16


def test_old_eee_records_without_a_library_are_read_with_a_notice(record):
    old = record(schema_version="0.2.1")
    del old["eval_library"]
    assert [i.message for i in read_log(old).issues] == ["not reported"]


def test_reducers_of_epochs_are_protocols_and_epochs_add_no_samples(tmp_path):
    path, _, _ = inspect_log_file(tmp_path, name="log.json")
    document = json.loads(path.read_text())
    document["eval"]["config"]["epochs"] = 4
    document["results"] |= {"total_samples": 40, "completed_samples": 40}
    (score,) = document["results"]["scores"]
    del score["metrics"]["mean_steps"]
    document["results"]["scores"] = [
        score, score | {"reducer": "mean", "scored_samples": 9}, score | {"reducer": "pass_at_2"}
    ]  # fmt: skip
    path.write_text(json.dumps(document))
    (log,) = inspect(path).logs
    methods = [r.metric_config.additional_details["method"] for r in log.evaluation_results]
    assert methods == ["scorer gaia_scorer", "scorer gaia_scorer", "scorer gaia_scorer, reducer pass_at_2"]
    assert [r.score_details.uncertainty["num_samples"] for r in log.evaluation_results] == [10, 9, 10]
    store = Store(None)
    store.add([log])
    assert sorted(triple.rows for triple in store.triples()) == [1, 2]


def test_a_metric_of_unknown_type_goes_by_its_name(tmp_path):
    (tmp_path / "README.md").write_text(
        "---\nmodel-index:\n- name: a/b\n  results:\n  - task: {type: x}\n    dataset: {name: AlpacaEval, type: y}\n"
        "    metrics:\n    - {type: unknown, name: win rate, value: 0.9}\n    - {type: unknown, value: 0.8}\n---\n"
    )
    (log,) = hf_model_card(tmp_path / "README.md").logs
    assert [r.metric_config.metric_id for r in log.evaluation_results] == ["win rate", "score"]


def test_a_file_without_results_is_no_success(tmp_path, record):
    (tmp_path / "a.json").write_text(json.dumps(record()))
    (tmp_path / "b.json").write_text("[]")
    done = import_files(Store(None), [tmp_path / "a.json"], format="lm_eval")
    assert [(f.path, f.reason) for f in done.failures] == [
        (str(tmp_path / "a.json"), "no results in it, read as lm_eval")
    ]
    done = import_files(Store(None), [tmp_path])
    assert [f.reason for f in done.failures] == ["no results in it, read as eee"]
    assert (done.found, done.rows, done.failed) == (1, 1, 0)
