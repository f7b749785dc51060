"""What the commands print and refuse: counts for people, names that cannot act, options looked at before any work."""

import json

import pytest

from evalcards import cli, report
from evalcards.cli import app, evalcard_script
from evalcards.schema import read_log
from evalcards.sentences import many, p_text
from evalcards.store import Store
from papers_shared.cli import visible


def run(capsys, script, *arguments):
    with pytest.raises(SystemExit) as stop:
        script([*map(str, arguments)])
    return stop.value.code, *capsys.readouterr()


@pytest.fixture
def one(tmp_path, record):
    """A file of one record."""
    path = tmp_path / "one.json"
    path.write_text(json.dumps(record(0.5, arguments={"temperature": 0, "max_tokens": 9})))
    return path


def test_counts_agree_with_their_nouns(capsys, tmp_path, one):
    assert [many(n, "card") for n in (0, 1, 2, 1000)] == ["0 cards", "1 card", "2 cards", "1,000 cards"]
    assert many(2, "entry", "entries") == "2 entries"
    code, out, err = run(capsys, evalcard_script, one, "--out", tmp_path / "out")
    assert code == 0
    for text in ("1 result in 1 triple\n", "1 benchmark\n", "1 card (HTML"):
        assert text in out
    assert err.startswith("1 file read, 0 read before; 1 result found = 1 row + 0 failed; 1 record added, 0 there")
    card = (tmp_path / "out" / "model-example-one.md").read_text()
    assert "1 result, 1 triple." in card
    for page in (out + err, card, (tmp_path / "out" / "model-example-one.html").read_text()):
        assert not [noun for noun in ("results", "triples", "benchmarks", "cards", "files") if f" 1 {noun} " in page]


def test_quiet_is_quiet(capsys, tmp_path, one):
    assert run(capsys, evalcard_script, one, "-q", "--out", tmp_path / "out")[2] == ""
    assert run(capsys, app, "import", one, "-q", "--store", tmp_path / "s.duckdb")[2] == ""


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--profile", "best"], "no reproducibility profile 'best'"),
        (["--threshold-factor", "nan"], "want a positive finite number"),
        (["--field-set", "one.json"], 'want {"fields"'),
        (["--format", "xml"], "--format xml: want one of eee, lm_eval"),
        (["--mapping", "none.yaml"], "mapping none.yaml: no such file"),
        (["--mapping", "broken.yaml"], "mapping broken.yaml:2:1: not YAML: expected"),
        (["--mapping", "one.json"], "needs 'model'"),
        (["--models", "none.json"], "no such file"),
        (["--out", "one.json"], "is a file"),
        (["--out", "full"], "is not empty (holds mine.txt); pass --force"),
        (["--out", "full", "--force"], "no run of ours made it"),
        ([""], "an input is empty"),
    ],
)
def test_options_are_looked_at_before_anything_is_read_or_kept(capsys, tmp_path, monkeypatch, one, arguments, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.yaml").write_text("model: [a\n")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    before = sorted(tmp_path.iterdir())
    code, out, err = run(capsys, evalcard_script, one, "--store", "new.duckdb", *arguments)
    assert (code, out) == (2, "")
    assert says in err
    assert err.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == before


def test_a_store_is_only_a_duckdb_file(capsys, tmp_path, monkeypatch, one):
    monkeypatch.chdir(tmp_path)
    text = one.read_text()
    for arguments in (("import", one, "--store", one), ("signals", "--store", one), ("monitor", "--store", one)):
        code, _, err = run(capsys, app, *arguments)
        assert code == 2
        assert "is no store, and no DuckDB file" in err
    assert one.read_text() == text
    for name in (":memory:", "md:cloud", "new.json"):  # what DuckDB itself would keep nowhere, or elsewhere
        assert run(capsys, app, "import", one, "--store", name)[0] == 0
        assert (tmp_path / name).stat().st_size > 0
        assert run(capsys, app, "signals", "--store", name)[1].startswith("1 result,")


def test_names_cannot_act_on_the_terminal(capsys, tmp_path, record):
    name = "example/\x1b[31mred\x1b]0;title\x07\x9b2J\u202eabc\n| x"
    (tmp_path / "a.json").write_text(json.dumps(record(0.5, model=name, name="MM\x1b[2J\nLU")))
    code, out, _ = run(
        capsys, evalcard_script, tmp_path / "a.json", "--out", tmp_path / "out", "--store", tmp_path / "s"
    )
    assert code == 0
    acting = [c for c in out if (ord(c) < 32 and c != "\n") or 127 <= ord(c) < 160 or c == "\u202e"]
    assert acting == []
    assert r"example/\x1b[31mred" in out
    card = next((tmp_path / "out").glob("*.md")).read_text()
    assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(card)
    _, _, err = run(capsys, app, "compare", "example/redd", "b", "--on", "MMLU", "--store", tmp_path / "s")
    assert "\x1b" not in err
    assert visible("plain, 模型 é") == "plain, 模型 é"


def test_a_narrow_terminal_gets_lines_and_no_splinters(capsys, monkeypatch, tmp_path, one):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    line = {"model": "a/b", "benchmark": "MMLU 5-shot", "metric": "acc", "score": "0.5", "results": 1,
            "setup": "missing temperature", "decisions": "1/5", "completeness": "76%", "measured by": "third party (1)",
            "comparability": "nothing to check"}  # fmt: skip
    cli._print_narrow([line], "triples")
    out = capsys.readouterr().out
    assert out.splitlines() == [
        "triples",
        "a/b MMLU 5-shot acc: 0.5 (1 result)",
        "  setup missing temperature, decisions 1/5; completeness 76%",
        "  third party (1); nothing to check",
    ]


def test_triples_that_differ_in_split_unit_or_composite_are_lines_of_their_own(record):
    store = Store(None)
    places = [
        ({}, {"split": "test"}), ({}, {"split": "valid"}), ({"metric_unit": "points"}, {"split": "test"}),
        ({}, {"split": "test", "composite": "Lite"}),
    ]  # fmt: skip
    for number, (metric, details) in enumerate(places):
        document = record(0.1 * (number + 1), identity=f"r{number}", metric=metric)
        document["evaluation_results"][0]["metric_config"]["additional_details"] = details
        store.add([read_log(document)])
    store.signals()
    lines = report.triple_rows(store)
    assert [(line["benchmark"], line["metric"], line["score"], line["results"]) for line in lines] == [
        ("MMLU in no suite, split test", "accuracy (unit not reported)", "0.1", 1),
        ("MMLU in no suite, split test", "accuracy (points)", "0.3", 1),
        ("MMLU in no suite, split valid", "accuracy (unit not reported)", "0.2", 1),
        ("MMLU within lite, split test", "accuracy (unit not reported)", "0.4", 1),
    ]
    from evalcards.render import card

    for fmt in ("html", "md"):
        page = card(store, "example/one", fmt=fmt)
        assert "split valid" in page
        assert "accuracy (points)" in page
        assert "within lite" in page


def test_a_value_to_check_is_told_in_every_form(record):
    from evalcards.render import card

    store = Store(None)
    store.add([read_log(record(73.4, metric={"metric_unit": "proportion"}))])
    store.signals()
    told = "check the value 73.4: percent under proportion bounds"
    assert report.triple_rows(store)[0]["comparability"] == told
    assert told in card(store, "example/one", fmt="md")
    assert "percent under proportion bounds" in card(store, "example/one")


def test_rates_name_all_four_kinds_of_source(record):
    from evalcards.signals import rollup

    store = Store(None)
    store.add([read_log(record(0.5, relationship="other", organisation=None))])
    lines = {line["what"]: line["count"] for line in report.summary_rows(rollup(store))}
    assert lines["results by somebody whose relation is not stated"] == "1 of 1"
    assert lines["results by both together"] == "0 of 1"


def test_no_p_value_is_nought():
    assert p_text(0.0) == "p < 1e-300"
    assert p_text(0.0123) == "p = 0.012"


def test_an_interrupted_import_says_that_it_goes_on(capsys, tmp_path, monkeypatch, one):
    def interrupted(*_arguments, **_settings):
        raise KeyboardInterrupt

    store = tmp_path / "s.duckdb"
    with monkeypatch.context() as patched:
        patched.setattr("evalcards.importing.import_files", interrupted)
        code, out, err = run(capsys, app, "import", one, "--store", store)
    assert (code, out) == (130, "")
    assert err == f"interrupted; what was stored stays in {store}. Run the same command to go on\n"
    assert run(capsys, app, "import", one, "--store", store)[0] == 0  # the store was closed whole
