"""Claims are measured, judged and reported; a killed run goes on; nothing that failed is hidden."""

import functools
import importlib
import json
import os
import re
import subprocess
import sys
import textwrap

import pytest

from papers_shared import InputError, _claim, _provenance, claims, cli
from papers_shared.claims import Claim, Context, claim, collect, render_table, run, summary
from papers_shared.metrics import Interval

PACKAGE = """
import os, pathlib, sys, time
import numpy as np
from matplotlib.figure import Figure
from papers_shared.claims import claim
from papers_shared.metrics import bootstrap_interval

def log(what):
    with open(os.environ["CLAIMS_LOG"], "a") as file:
        file.write(what + "\\n")

def slow(n, seeds):
    log("slow")
    return {"values": np.arange(n * len(seeds)), "tuple": (1, 2)}

@claim("T1", statement="the mean | is large", paper="+1.07", seeds=3)
def first(ctx):
    log("T1")
    found = ctx.cache("shared work", slow, ctx.pick(small=4, paper=400, smoke=2), ctx.seeds)
    fig = Figure(figsize=(1, 1))
    name = ctx.figure("first.png", fig, "Caption.")
    mean = bootstrap_interval(found["values"])
    return {"measured": {"mean": mean, "n": np.int64(len(found["values"]))}, "holds": mean.low > 0.1, "figure": name}

@claim("T2", statement="it is never negative", paper="always")
def second(ctx):
    log("T2")
    if os.environ.get("CLAIMS_WAIT"):
        print("waiting", flush=True)
        time.sleep(60)
    return {"measured": {"smallest": -0.5}, "holds": np.bool_(False)}

@claim("T3", statement="ranking", paper="none given", must_hold=False)
def third(ctx):
    log("T3")
    ctx.cache("shared work", slow, ctx.pick(small=4, paper=400, smoke=2), (0, 1, 2))
    return {"measured": {"ranks": [1, 2], "nan": float("nan")}}

MARK = 1

@claim("T4", statement="raises", paper="-")
def fourth(ctx):
    log("T4")
    if os.environ.get("CLAIMS_BUG"):
        raise RuntimeError("deep inside")
    return {"measured": {"mark": MARK}, "holds": True}
"""
ALL = ["T1", "T2", "T3", "T4"]


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Write the package above and return a function that imports it anew, with changes."""
    folder = tmp_path / "src" / "claimspackage"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path / "src")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setenv("CLAIMS_LOG", str(tmp_path / "log.txt"))
    monkeypatch.chdir(tmp_path)

    def write(*changes):
        text = PACKAGE
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        (folder / "claims.py").write_text(text)
        for name in ("claimspackage", "claimspackage.claims"):
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        return "claimspackage"

    write()
    yield write
    for name in ("claimspackage", "claimspackage.claims"):
        sys.modules.pop(name, None)


@pytest.fixture
def ran(tmp_path):
    """Return what was computed since the last call."""

    def read():
        path = tmp_path / "log.txt"
        lines = path.read_text().split() if path.exists() else []
        path.write_text("")
        return lines

    return read


def test_the_report_has_the_agreed_form(package, tmp_path, ran):
    report = run(package(), out=tmp_path / "out")
    text = (tmp_path / "out" / "claims.json").read_text()
    assert json.loads(text, parse_constant=pytest.fail) == report
    assert list(report) == ["package", "version", "scale", "provenance", "claims"]
    assert (report["package"], report["scale"]) == ("claimspackage", "small")
    keys = ["id", "statement", "paper", "measured", "must_hold", "holds", "figure", "seeds", "seconds"]
    assert [list(entry) for entry in report["claims"]] == [keys] * 4
    assert [(entry["id"], entry["must_hold"], entry["holds"]) for entry in report["claims"]] == [
        *[("T1", True, True), ("T2", True, False), ("T3", False, None), ("T4", True, True)]
    ]
    first = report["claims"][0]
    assert first["seeds"] == [0, 1, 2]
    assert first["figure"] == "first.png"
    assert first["measured"]["n"] == 12
    assert list(first["measured"]["mean"]) == ["value", "low", "high"]
    assert report["claims"][2]["measured"] == {"ranks": [1, 2], "nan": None}
    assert str(tmp_path) not in text
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["claims.json", "first.png"]
    assert ran() == ["T1", "slow", "T2", "T3", "slow", "T4"]  # other seeds are other work


def test_provenance_says_what_made_it(package, tmp_path):
    found = run(package(), out=tmp_path / "out", only=["T2", "T4"])["provenance"]
    assert {"git", "command", "python", "platform", "cpu", "libraries", "seconds"} <= set(found)
    assert found["not_run"] == ["T1", "T3"]
    assert set(found["fingerprints"]) == {"T2", "T4"}


def test_seeds_given_are_used_by_all_and_shared_work_is_done_once(package, tmp_path, ran):
    report = run(package(), out=tmp_path / "out", seeds=[0, 1, 2])
    assert all(entry["seeds"] == [0, 1, 2] for entry in report["claims"])
    assert ran().count("slow") == 1


def test_the_scale_reaches_the_claims(package, tmp_path):
    for scale, n in (("smoke", 6), ("small", 12), ("paper", 1200)):
        report = run(package(), out=tmp_path / scale, scale=scale, only=["T1"])
        assert report["claims"][0]["measured"]["n"] == n
        assert report["scale"] == scale


def test_a_claim_that_raises_is_reported_and_not_hidden(package, tmp_path, ran, monkeypatch, caplog):
    monkeypatch.setenv("CLAIMS_BUG", "1")
    report = run(package(), out=tmp_path / "out")
    entry = report["claims"][3]
    assert entry["measured"] == {"error": "RuntimeError: deep inside"}
    assert entry["holds"] is False
    assert "deep inside" in caplog.text
    assert "claims.py" in caplog.text  # with its traceback
    assert "**error**" in render_table(report)
    assert ran()[-1] == "T4"
    monkeypatch.delenv("CLAIMS_BUG")
    again = run(package(), out=tmp_path / "out", resume=True)
    assert ran() == ["T4"]
    assert again["claims"][:3] == report["claims"][:3]
    assert again["claims"][3]["holds"] is True
    assert not (tmp_path / "out" / ".partial").exists()


def test_results_are_not_overwritten_unasked(package, tmp_path):
    out = tmp_path / "out"
    run(package(), out=out, only=["T2"])
    with pytest.raises(InputError, match=r"is not empty; pass --resume .* --force"):
        run(package(), out=out)
    with pytest.raises(InputError, match="exclude each other"):
        run(package(), out=out, resume=True, force=True)
    with pytest.raises(InputError, match="at scale small, not paper"):
        run(package(), out=out, scale="paper", resume=True)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is a file"):
        run(package(), out=tmp_path / "file")


def test_resume_keeps_all_that_is_valid_and_the_file_as_it_was(package, tmp_path, ran):
    run(package(), out=tmp_path / "out")
    before = (tmp_path / "out" / "claims.json").read_bytes()
    ran()
    report = run(package(), out=tmp_path / "out", resume=True)
    assert ran() == []
    assert (tmp_path / "out" / "claims.json").read_bytes() == before
    assert json.loads(before) == report
    assert not (tmp_path / "out" / ".partial").exists()


@pytest.mark.parametrize(
    ("changes", "again"),
    [
        ([("MARK = 1", "MARK = 2")], ["T4"]),
        ([("-0.5", "-0.6")], ["T2"]),
        ([("+1.07", "+1.08")], ["T1"]),
        ([('log("slow")', 'log("slow"); n = n + 1')], ["T1", "T3"]),
        ([("import bootstrap_interval", "import bootstrap_interval ")], []),
    ],
)
def test_resume_measures_again_what_other_code_would_measure(package, tmp_path, ran, changes, again):
    run(package(), out=tmp_path / "out")
    ran()
    run(package(*changes), out=tmp_path / "out", resume=True)
    assert [name for name in ran() if name != "slow"] == again


def test_resume_measures_again_with_other_seeds_or_another_version(package, tmp_path, ran, monkeypatch):
    run(package(), out=tmp_path / "out", only=["T2"])
    ran()
    run(package(), out=tmp_path / "out", only=["T2"], seeds=[5], resume=True)
    assert ran() == ["T2"]
    monkeypatch.setattr("papers_shared._claims_runner.package_version", lambda _: "9.9")
    report = run(package(), out=tmp_path / "out", only=["T2"], seeds=[5], resume=True)
    assert ran() == ["T2"]
    assert report["version"] == "9.9"


def test_a_kept_claim_says_which_commit_measured_it(package, tmp_path, monkeypatch):
    """Whether it was kept from finished results, once or twice over, or from a run that was killed."""
    commits = iter([{"commit": letter * 40, "dirty": False} for letter in "abcd"])
    monkeypatch.setattr(_provenance, "_git", lambda *_: next(commits))
    stopped = package(('log("T3")', 'log("T3"); raise KeyboardInterrupt'))
    with pytest.raises(KeyboardInterrupt):
        run(stopped, out=tmp_path / "out")
    first = run(package(), out=tmp_path / "out", resume=True)["provenance"]
    assert first["git"]["commit"] == "b" * 40
    assert {name: git["commit"][0] for name, git in first["kept_from"].items()} == {"T1": "a", "T2": "a"}
    changed = package(('"it is never negative"', '"it is never below zero"'))
    second = run(changed, out=tmp_path / "out", resume=True)["provenance"]
    assert {name: git["commit"][0] for name, git in second["kept_from"].items()} == {"T1": "a", "T3": "b", "T4": "b"}
    assert "kept_from" not in run(changed, out=tmp_path / "out", force=True)["provenance"]


def test_resume_measures_again_when_the_figure_is_gone(package, tmp_path, ran):
    run(package(), out=tmp_path / "out")
    (tmp_path / "out" / "first.png").unlink()
    ran()
    run(package(), out=tmp_path / "out", resume=True)
    assert ran() == ["T1", "slow"]
    assert (tmp_path / "out" / "first.png").exists()


def test_force_measures_again_and_removes_figures_that_no_claim_names_any_more(package, tmp_path, ran):
    run(package(), out=tmp_path / "out")
    (tmp_path / "out" / "notes.txt").write_text("mine")
    ran()
    run(package(("first.png", "other.png")), out=tmp_path / "out", force=True)
    assert [name for name in ran() if name != "slow"] == ALL
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["claims.json", "notes.txt", "other.png"]


def test_one_claim_can_be_measured_again_without_losing_the_others(package, tmp_path, ran):
    before = run(package(), out=tmp_path / "out")
    ran()
    report = run(package(("-0.5", "-0.7")), out=tmp_path / "out", only=["T2"], force=True)
    assert ran() == ["T2"]
    assert report["claims"][1]["measured"] == {"smallest": -0.7}
    assert [report["claims"][n] for n in (0, 2, 3)] == [before["claims"][n] for n in (0, 2, 3)]
    stale = run(package(("-0.5", "-0.7"), ("MARK = 1", "MARK = 2")), out=tmp_path / "out", only=["T2"], force=True)
    assert stale["provenance"]["not_run"] == ["T4"]
    assert "not run" in render_table(stale)


def test_a_run_killed_in_the_middle_goes_on_where_it_was(package, tmp_path, ran, monkeypatch):
    """Kill -9 inside the second claim: the first is not measured again, nor is the work it shared."""
    package()
    code = "from papers_shared.claims import run; run('claimspackage', out='out', seeds=[0, 1, 2])"
    environment = {**os.environ, "CLAIMS_WAIT": "1", "PYTHONPATH": str(tmp_path / "src")}
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment)
    assert process.stdout.readline() == b"waiting\n"
    for options in ({"resume": True}, {"force": True}):
        with pytest.raises(InputError, match="another process is measuring claims in"):
            run(package(), out=tmp_path / "out", **options)
    process.kill()
    process.wait()
    process.stdout.close()
    assert ran() == ["T1", "slow", "T2"]
    assert not (tmp_path / "out" / "claims.json").exists()
    report = run(package(), out=tmp_path / "out", seeds=[0, 1, 2], resume=True)
    assert ran() == ["T2", "T3", "T4"]
    assert [entry["id"] for entry in report["claims"]] == ALL
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["claims.json", "first.png"]


@pytest.mark.parametrize("settings", [{"seeds": [5, 6]}, {"scale": "smoke"}])
def test_a_killed_run_resumed_with_other_settings_mixes_nothing(package, tmp_path, ran, settings):
    """Nothing that the first run kept, shared work included, gets into results of other seeds or another scale."""
    changed = package(('log("T3")', 'log("T3"); raise KeyboardInterrupt'))
    with pytest.raises(KeyboardInterrupt):
        run(changed, out=tmp_path / "out")
    assert ran() == ["T1", "slow", "T2", "T3"]
    report = run(package(), out=tmp_path / "out", resume=True, **settings)
    assert [line for line in ran() if line != "slow"] == ALL
    fresh = run(package(), out=tmp_path / "fresh", **settings)
    assert [e["measured"] for e in report["claims"]] == [e["measured"] for e in fresh["claims"]]
    assert [e["seeds"] for e in report["claims"]] == [e["seeds"] for e in fresh["claims"]]
    assert (report["scale"], report["provenance"]["seed"]) == (fresh["scale"], fresh["provenance"]["seed"])


def test_a_verdict_of_nan_is_an_error_and_a_measured_nan_is_shown(package, tmp_path):
    nan = package(('"holds": np.bool_(False)', '"holds": float("nan")'), ("-0.5}", 'float("nan")}'))
    entries = {entry["id"]: entry for entry in run(nan, out=tmp_path / "a")["claims"]}
    assert "must say whether it does" in entries["T2"]["measured"]["error"]
    assert entries["T2"]["holds"] is False
    compared = package(('"holds": np.bool_(False)', '"holds": float("nan") > 0'), ("-0.5}", 'float("nan")}'))
    entries = {entry["id"]: entry for entry in run(compared, out=tmp_path / "b")["claims"]}
    assert (entries["T2"]["measured"], entries["T2"]["holds"]) == ({"smallest": None}, False)
    assert "| T2 | it is never negative | always | smallest - | **not held** |" in render_table(
        tmp_path / "b/claims.json"
    )


def test_a_claim_that_exits_is_reported_like_one_that_raises(package, tmp_path, ran):
    report = run(package(('log("T2")', 'log("T2"); sys.exit(0)')), out=tmp_path / "out")
    assert ran() == ["T1", "slow", "T2", "T3", "slow", "T4"]
    assert report["claims"][1]["measured"] == {"error": "SystemExit: 0"}
    assert report["claims"][1]["holds"] is False


def test_shared_work_that_can_no_longer_be_read_is_done_again(package, tmp_path, ran):
    changed = package(('log("T2")', 'log("T2"); raise KeyboardInterrupt'))
    with pytest.raises(KeyboardInterrupt):
        run(changed, out=tmp_path / "out")
    ran()
    (kept,) = (tmp_path / "out" / ".partial" / "cache").iterdir()
    kept.write_bytes(b"cgone.module\nGone\n.")  # the pickle of a class that is not there any more
    report = run(package(), out=tmp_path / "out", resume=True)
    assert ran() == ["T2", "T3", "slow", "T4"]
    assert summary(report) == "2 held, 1 not held (T2), 1 report only"


def test_shared_work_that_finds_no_room_is_used_but_not_kept(tmp_path, monkeypatch, caplog):
    def full(path, *_):
        raise InputError(f"cannot write {path}: no space left on device")

    monkeypatch.setattr(_claim, "write_bytes", full)
    context = Context("smoke", (0,), tmp_path, label="C1")
    assert context.cache("power", pow, 2, 10) == 1024
    assert "is not kept for --resume" in caplog.text


def test_ctrl_c_stops_at_once_and_keeps_what_is_done(package, tmp_path, ran):
    changed = package(('log("T2")', 'log("T2"); raise KeyboardInterrupt'))
    with pytest.raises(KeyboardInterrupt):
        run(changed, out=tmp_path / "out")
    assert ran() == ["T1", "slow", "T2"]
    run(package(), out=tmp_path / "out", resume=True)
    assert "T1" not in ran()


def test_unfinished_state_is_hidden_from_git(package, tmp_path, monkeypatch):
    monkeypatch.setenv("CLAIMS_BUG", "1")
    run(package(), out=tmp_path / "out")
    assert (tmp_path / "out" / ".partial" / ".gitignore").read_text() == "*\n"


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ("None", "must return a mapping"),
        ("{'measured': 3, 'holds': True}", "must return a mapping with 'measured'"),
        ("{'measured': {}}", "must say whether it does"),
        ("{'measured': {}, 'holds': None}", "must say whether it does"),
        ("{'measured': {}, 'holds': 1}", "must be true, false or None"),
        ("{'measured': {}, 'holds': True, 'figures': 'a.png'}", "unknown keys"),
        ("{'measured': {}, 'holds': True, 'figure': 'none.png'}", "names figure none.png"),
        ("{'measured': {'a': object()}, 'holds': True}", "cannot be written as JSON"),
    ],
)
def test_answers_of_the_wrong_form_are_errors_of_that_claim(package, tmp_path, answer, says):
    changed = package(('{"measured": {"smallest": -0.5}, "holds": np.bool_(False)}', answer))
    entry = run(changed, out=tmp_path / "out", only=["T2"])["claims"][0]
    assert says in entry["measured"]["error"]
    assert entry["holds"] is False


def test_a_verdict_on_a_claim_that_need_not_hold_is_kept(package, tmp_path):
    changed = package(('"nan": float("nan")}}', '"nan": 1}, "holds": False}'))
    entry = run(changed, out=tmp_path / "out", only=["T3"])["claims"][0]
    assert (entry["must_hold"], entry["holds"]) == (False, False)


def test_unknown_names_are_the_user_s_mistake(package, tmp_path):
    with pytest.raises(InputError, match="no claim T9; choose among T1, T2, T3, T4"):
        run(package(), out=tmp_path / "out", only=["T1", "T9"])
    with pytest.raises(InputError, match="unknown scale 'huge'"):
        run(package(), out=tmp_path / "out", scale="huge")
    assert not (tmp_path / "out").exists()
    with pytest.raises(InputError, match="json has no claims"):
        run("json", out=tmp_path / "out")


def test_a_broken_import_inside_claims_is_not_taken_for_their_absence(package, tmp_path):
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        run(package(("import os,", "import no_such_module, os,")), out=tmp_path / "out")


def test_two_claims_of_one_name_are_a_mistake_of_the_package(package):
    with pytest.raises(ValueError, match="more than one claim is called T1"):
        collect(package(('"T2"', '"T1"')))


def test_the_mark_leaves_the_function_usable(tmp_path):
    @claim("X", statement="s", paper="p", seeds=2)
    def measure(ctx):
        return {"measured": {"seeds": list(ctx.seeds)}, "holds": True}

    assert measure(Context(seeds=(4,), out=tmp_path))["measured"] == {"seeds": [4]}
    assert measure.__claim__ == Claim("X", "s", "p", True, 2, measure)


def test_a_context_alone_caches_and_tracks(tmp_path, capsys):
    context, calls = Context("smoke", (0,), tmp_path), []

    def work(n, *, unit=None):
        calls.append(n)
        return {n}

    assert context.cache("w", work, 1) == context.cache("w", work, 1) == {1}
    assert context.cache("w", work, 2) == {2}
    assert context.cache("w", work, 1, unit={"not": object}) == {1}
    assert calls == [1, 2, 1]
    assert Context("smoke", (0,), tmp_path).cache("w", work, 1) == {1}  # from the disk
    assert calls == [1, 2, 1]
    Context("small", (0,), tmp_path).cache("w", work, 1)
    Context("smoke", (1,), tmp_path).cache("w", work, 1)
    assert calls == [1, 2, 1, 1, 1]
    assert list(context.track("ab", "letters")) == ["a", "b"]


def test_work_bound_to_arguments_or_an_object_is_cached_like_any_other(tmp_path):
    class Study(dict):  # not hashable
        def size(self, extra):
            calls.append(extra)
            return len(self) + extra

    calls, context = [], Context("smoke", (0,), tmp_path)
    for _ in range(2):
        assert context.cache("size", Study(a=1).size, 2) == 3
        assert context.cache("size", Study(a=1, b=2).size, 2) == 4
        assert context.cache("power", functools.partial(pow, 2), 5) == 32
        assert context.cache("power", functools.partial(pow, 3), 5) == 243
    assert calls == [2, 2]


def test_what_cannot_be_pickled_is_used_but_not_kept(tmp_path, caplog):
    context = Context("smoke", (0,), tmp_path, label="C1")
    assert context.cache("model", lambda: lambda x: x + 1)(1) == 2
    assert "C1: model-" in caplog.text
    assert "is not kept for --resume" in caplog.text
    assert not list(tmp_path.iterdir())


def command(package, *arguments):
    app = cli.paper_app(package)
    with pytest.raises(SystemExit) as stop:
        app(args=["claims", *arguments], prog_name=package)
    return stop.value.code


def test_the_command_prints_a_table_and_a_summary(package, capsys):
    assert command(package(), "--out", "here") == 0
    out = capsys.readouterr().out
    assert [line.split()[0] for line in out.splitlines()[2:6]] == ALL
    assert out.endswith("2 held, 1 not held (T2), 1 report only. Details: here/claims.json\n")


def test_the_default_folder_names_package_and_scale(package, tmp_path, capsys):
    assert command(package(), "--only", "T4") == 0
    assert (tmp_path / "claimspackage-claims-small" / "claims.json").exists()


def test_the_command_as_json(package, capsys):
    assert command(package(), "--json", "--only", "T3, T4", "--seeds", "2") == 0
    report = json.loads(capsys.readouterr().out)
    assert [(entry["id"], entry["seeds"]) for entry in report["claims"]] == [("T3", [0, 1]), ("T4", [0, 1])]


def test_strict_fails_when_a_claim_that_must_hold_does_not(package, capsys):
    assert command(package(), "--out", "a", "--strict") == 1
    assert command(package(), "--out", "b", "--strict", "--only", "T1,T3,T4") == 0


def test_an_error_fails_also_without_strict(package, capsys, monkeypatch):
    monkeypatch.setenv("CLAIMS_BUG", "1")
    assert command(package(), "--out", "a") == 1
    captured = capsys.readouterr()
    assert "RuntimeError: deep inside" in captured.out
    assert "Traceback" in captured.err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--scale", "huge"], "--scale huge"),
        (["--scale", "smoke"], "choose small or paper"),
        (["--seeds", "x"], "seeds"),
        (["--only", "T9"], "no claim T9; choose among T1, T2, T3, T4"),
        (["--only", " , "], "no claim; choose among T1, T2, T3, T4"),
    ],
)
def test_wrong_options_are_one_line(package, capsys, arguments, says):
    assert command(package(), *arguments) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: ")
    assert says in err
    assert err.count("\n") == 1


def entry(**changes):
    base = {"id": "A", "statement": "s", "paper": "p", "measured": {}, "must_hold": True, "holds": True}
    return {**base, "figure": None, "seeds": [0], "seconds": 1.0, **changes}


def test_the_markdown_table(tmp_path):
    report = {
        "claims": [
            entry(measured={"gain": {"value": 0.81234, "low": 0.7, "high": 0.9}}),
            entry(id="B", statement="a | b\nc", holds=False, measured={"x": 12345.678}),
            entry(id="C", must_hold=False, holds=None, measured={"n": 3}),
            entry(id="D", holds=False, measured={"error": "ValueError: no"}),
        ],
        "provenance": {"not_run": ["E"]},
    }
    assert render_table(report) == textwrap.dedent("""\
        | | Claim | Paper | Ours | Held |
        |---|---|---|---|---|
        | A | s | p | gain 0.812 [0.7, 0.9] | held |
        | B | a \\| b c | p | x 12300 | **not held** |
        | C | s | p | n 3 | report only |
        | D | s | p | ValueError: no | **error** |
        | E |  |  |  | not run |
        """)
    assert summary(report) == "1 held, 1 not held (B), 1 report only, 1 error (D), 1 not run (E)"
    (tmp_path / "claims.json").write_text(json.dumps(report))
    assert render_table(tmp_path / "claims.json") == render_table(report)


def test_a_file_of_something_else_has_no_table(tmp_path):
    (tmp_path / "claims.json").write_text("[]")
    with pytest.raises(InputError, match=r"claims\.json is not a claims\.json"):
        render_table(tmp_path / "claims.json")


@pytest.mark.parametrize(
    ("measured", "text"),
    [
        ({"a_b": 0.000123456, "ok": True}, "a b 0.000123; ok yes"),
        ({"x": 1.5, "x_ci": [1, 2]}, "x 1.5 [1, 2]"),
        ({"x": {"mean": 1.5, "ci": [1, 2.25]}}, "x 1.5 [1, 2.25]"),
        ({"ci": [1, 2]}, "ci [1, 2]"),
        ({"x_ci": [1, 2]}, "x ci [1, 2]"),
        ({"slopes": {"c": 1.98, "d": 1.01}}, "slopes (c 1.98, d 1.01)"),
        ({"many": list(range(10))}, "many [0, 1, 2, 3, 4, 5, ... 10 in all]"),
        ({"none": None, "word": "id"}, "none -; word id"),
        ({"error": 0.02}, "error 0.02"),
        ({str(n): n for n in range(11)}, "0 0; 1 1; 2 2; 3 3; 4 4; 5 5; 6 6; 7 7; and 3 more in claims.json"),
        ({}, ""),
    ],
)
def test_what_was_measured_in_a_few_words(measured, text):
    assert claims.compact(measured) == text


def test_a_measured_quantity_called_error_is_no_failure():
    assert claims.verdict(entry(measured={"error": 0.02})) == "held"


def test_an_interval_of_the_metrics_is_shown_as_one():
    from papers_shared.artifacts import jsonable

    assert claims.compact(jsonable({"gain": Interval(0.5, 0.25, 0.75)})) == "gain 0.5 [0.25, 0.75]"


def test_seconds_are_measured(package, tmp_path):
    changed = package(('log("T4")', 'time.sleep(0.2); log("T4")'))
    found = run(changed, out=tmp_path / "out", only=["T4"])
    assert found["claims"][0]["seconds"] >= 0.2
    assert found["provenance"]["seconds"] == found["claims"][0]["seconds"]
    assert re.fullmatch(r"[0-9a-f]{16}", found["provenance"]["fingerprints"]["T4"])
