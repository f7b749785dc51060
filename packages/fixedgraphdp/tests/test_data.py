"""Readers of real formats, each on files made here, and what they refuse or skip."""

import json
import mailbox
from email.message import EmailMessage

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from fixedgraphdp import AttributionGraph, bound, data
from papers_shared.errors import InputError


def named(graph):
    return {
        str(graph.example_ids[e]): sorted(str(graph.user_ids[v]) for v in graph.users_of(e))
        for e in range(graph.n_examples)
    }


def message(identity, sender, to, cc=None):
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Subject"] = sender, to, "hello"
    if identity:
        mail["Message-ID"] = f"<{identity}>"
    if cc:
        mail["Cc"] = cc
    mail.set_content("text")
    return mail


MAILS = [
    message("1@x", "Ann <Ann@X.org>", "bob@x.org", "Eve <eve+news@x.org>"),
    message("2@x", "bob@x.org", '"Ann, A." <ann@x.org>, bob@x.org'),
    message("2@x", "bob@x.org", "eve@x.org"),
    message("", "bob@x.org", "eve@x.org"),
    message("5@x", "undisclosed", "nobody"),
]
EXPECTED = {"1@x": ["ann@x.org", "bob@x.org", "eve@x.org"], "2@x": ["ann@x.org", "bob@x.org"]}


@pytest.mark.parametrize("kind", ["mbox", "maildir"])
def test_mail_is_read_with_normalised_addresses_and_the_rest_is_listed(tmp_path, kind):
    path = tmp_path / ("mail.mbox" if kind == "mbox" else "mail")
    box = mailbox.mbox(path) if kind == "mbox" else mailbox.Maildir(path)
    for mail in MAILS:
        box.add(mail)
    box.flush()
    box.close()
    found = data.read(path)
    graph = named(found.graph)
    assert set(graph) == set(EXPECTED)
    assert graph["1@x"] == EXPECTED["1@x"]
    assert len(found.skipped) == 3
    assert any("repeats Message-ID" in line for line in found.skipped)
    assert any("no Message-ID" in line for line in found.skipped)
    assert any("no address" in line for line in found.skipped)
    assert named(AttributionGraph.from_emails(path)) == graph


def test_a_malformed_message_is_skipped_and_counted(tmp_path):
    path = tmp_path / "broken.mbox"
    good = b"From a\nMessage-ID: <ok@x>\nFrom: a@x.org\nTo: b@x.org\n\nhi\n\n"
    path.write_bytes(good + b"From b\n\xff\xfe\x00garbage without headers\n\n" + b"From c\nMessage-ID: <n@x>\n\nx\n")
    found = data.read(path)
    assert named(found.graph) == {"ok@x": ["a@x.org", "b@x.org"]}
    assert len(found.skipped) == 2


def test_arxiv_metadata_give_co_authors(tmp_path):
    path = tmp_path / "arxiv.jsonl"
    rows = [
        {"id": "2503.1", "title": "t", "authors_parsed": [["Ganesh", "Arun", ""], ["Doe", "Jane", "Jr"]]},
        {"id": "2503.2", "authors_parsed": [["Doe", "J.", ""], ["Collaboration", "", ""]]},
        {"id": "2503.3"},
        {"id": "2503.4", "authors_parsed": []},
    ]
    path.write_text("\n".join(map(json.dumps, rows)) + "\n{torn")
    found = data.read(path)
    assert named(found.graph) == {"2503.1": ["doe, j", "ganesh, a"], "2503.2": ["collaboration", "doe, j"]}
    assert len(found.skipped) == 3
    assert named(AttributionGraph.from_arxiv_jsonl(path)) == named(found.graph)


def test_arxiv_texts_follow_the_examples_and_odd_separators_do_not_break_lines(tmp_path):
    path = tmp_path / "arxiv.jsonl"
    rows = [
        {"id": "1", "title": "A\n  title", "abstract": " one\u2028two ", "authors_parsed": [["Doe", "Jane", ""]]},
        {"id": "2", "title": "no authors", "authors_parsed": []},
        {"id": "3", "title": "B", "abstract": "c", "authors_parsed": [["Roe", "R", ""]]},
    ]
    path.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows), encoding="utf-8")
    reading, texts = data.read_arxiv_texts(path)
    assert reading.graph.example_ids.tolist() == ["1", "3"]
    assert texts == ["A title\none two", "B\nc"]


def test_chat_exports_attribute_to_sender_and_mentioned(tmp_path):
    path = tmp_path / "chat.jsonl"
    rows = [{"id": 1, "sender": "ann", "mentions": ["bob"]}, {"id": 2, "sender": "bob"}, {"sender": "eve"}]
    rows += [{"id": 3, "sender": None}, {"id": 4, "sender": "ann", "mentions": "bob"}, {"id": None, "sender": "a"}, [1]]
    path.write_text("\n".join(map(json.dumps, rows)))
    found = data.read(path)
    assert named(found.graph) == {"1": ["ann", "bob"], "2": ["bob"]}
    assert named(AttributionGraph.from_chat(path)) == named(found.graph)
    assert len(found.skipped) == 5


def test_pair_tables_and_lists_are_one_graph(tmp_path):
    (tmp_path / "p.csv").write_text("example_id,user_id\na,u1\na,u2\nb,u2\n")
    parquet.write_table(
        pa.table({"example_id": ["a", "a", "b"], "user_id": ["u1", "u2", "u2"]}), tmp_path / "p.parquet"
    )
    lists = pa.table({"example_id": ["a", "b"], "user_ids": [["u1", "u2"], ["u2"]]})
    parquet.write_table(lists, tmp_path / "l.parquet")
    (tmp_path / "p.txt").write_text("# users of each example\nu1 u2\n\nu2  # alone\n")
    expected = {"a": ["u1", "u2"], "b": ["u2"]}
    assert named(AttributionGraph.from_csv(tmp_path / "p.csv")) == expected
    assert named(AttributionGraph.from_parquet(tmp_path / "p.parquet")) == expected
    assert named(AttributionGraph.from_parquet(tmp_path / "l.parquet")) == expected
    assert named(data.read(tmp_path / "p.txt").graph) == {"line 2": ["u1", "u2"], "line 4": ["u2"]}


def test_names_of_a_csv_are_text_and_numbered_by_first_appearance(tmp_path):
    path = tmp_path / "p.csv"
    path.write_text("example_id,body,user_id\n2,secret,007\n2,secret,7\n2026-01-01,secret,007\n")
    graph = AttributionGraph.from_csv(path)
    assert named(graph) == {"2": ["007", "7"], "2026-01-01": ["007"]}
    columns = ["2", "2", "2026-01-01"], ["007", "7", "007"]
    same = AttributionGraph.from_pairs(*columns)
    assert graph.example_ids.tolist() == same.example_ids.tolist()
    assert graph.user_ids.tolist() == same.user_ids.tolist()
    assert graph.example_users.tolist() == same.example_users.tolist()


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        (None, "cannot read"),
        ({"x": np.ones((2, 2))}, "cannot read"),
        ({"x": np.ones((2, 2)), "y": np.ones(3)}, "shape"),
        ({"x": np.full((2, 2), np.nan), "y": np.ones(2)}, "finite"),
        ({"x": np.ones((2, 2)), "y": np.array([0, 2])}, "labels are 0 or 1"),
    ],
)
def test_features_that_do_not_fit_are_refused(tmp_path, arrays, says):
    path = tmp_path / "rows.npz"
    path.write_bytes(b"PK\x03\x04 torn") if arrays is None else np.savez(path, **arrays)
    with pytest.raises(InputError, match=says):
        data.read_features(path)
    (tmp_path / "photo.npz").write_bytes(b"\x00\x01 no archive")
    with pytest.raises(InputError, match=r"is no \.npz file"):  # and no advice to unpickle it
        data.read_features(tmp_path / "photo.npz")
    np.save(tmp_path / "x.npy", np.ones(3))
    with pytest.raises(InputError, match="single array"):
        data.read_features(tmp_path / "x.npy")


def test_examples_without_users_are_refused_by_name_or_kept_as_public(tmp_path):
    path = tmp_path / "p.csv"
    path.write_text("example_id,user_id\na,u1\n" + "".join(f"e{i},\n" for i in range(7)))
    with pytest.raises(ValueError, match="7 examples without users: e0, e1, e2, e3, e4, "):
        data.read(path)
    graph = data.read(path, empty="public").graph
    assert graph.stats()["public_examples"] == 7
    assert bound(graph, 1).size == 8


def test_repeated_pairs_are_refused_or_dropped(tmp_path):
    path = tmp_path / "p.csv"
    path.write_text("example_id,user_id\na,u1\na,u1\n")
    with pytest.raises(ValueError, match=r"repeated \(example, user\) pairs, first \(a, u1\)"):
        data.read(path)
    assert data.read(path, dedupe=True).graph.n_incidences == 1


def test_ids_of_mixed_types_become_text_with_a_warning():
    with pytest.warns(UserWarning, match="mixed types"):
        graph = AttributionGraph.from_pairs([1, 1, 2], ["a", 7, "a"])
    assert graph.user_ids.tolist() == ["a", "7"]


def test_unknown_users_and_missing_names_are_refused():
    with pytest.raises(ValueError, match="unknown user 5"):
        AttributionGraph.from_lists([[0, 5]], n_users=3)
    with pytest.raises(ValueError, match="user id missing in row 2"):
        AttributionGraph.from_pairs(["a", "b"], ["u", None])


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("missing.csv", None, "no such file"),
        ("p.csv", "a,b\n1,2\n", "lacks example_id and user_id"),
        ("p.csv", "example_id,user_id\na,u\n".encode("utf-16"), "UTF-16 text; save it as UTF-8"),
        ("p.parquet", "not parquet", "cannot read"),
        ("p.xyz", "x", "unknown kind"),
        ("p.jsonl", "{}\n", "no usable line"),
        ("p.mbox", "", "no usable message"),
    ],
)
def test_unusable_files_are_refused(tmp_path, name, text, says):
    path = tmp_path / name
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError, match=says):
        data.read(path)


def test_a_folder_that_is_no_maildir_is_refused(tmp_path):
    with pytest.raises(InputError, match="no maildir"):
        data.read(tmp_path)


def test_rows_are_compressed_both_ways_and_exported():
    graph = AttributionGraph.from_lists([[2, 0], [1], [2, 1]])
    assert graph.users_of(0).tolist() == [0, 2]
    assert graph.examples_of(2).tolist() == [0, 2]
    assert graph.degrees.tolist() == [1, 2, 2]
    edges = graph.to_multi_owner()
    assert list(zip(edges["example_ids"].tolist(), edges["user_ids"].tolist(), strict=True)) == [
        (0, 0), (0, 2), (1, 1), (2, 1), (2, 2),
    ]  # fmt: skip
    assert graph.subgraph(np.array([2, 0])).users_of(0).tolist() == [1, 2]


def test_the_embedded_graphs_have_their_known_sizes():
    sizes = {name: (g.n_users, g.n_examples) for name in data.EMBEDDED for g in [data.embedded(name)]}
    assert sizes == {"les_miserables": (77, 254), "davis_southern_women": (18, 14), "karate_club": (34, 78)}
    with pytest.raises(InputError, match="no embedded graph"):
        data.embedded("facebook")


@pytest.mark.parametrize("name", ["example_id", "user_id"])
def test_a_column_of_lists_is_refused_by_its_name(tmp_path, name):
    columns = {"example_id": ["a", "b"], "user_id": ["u", "v"]} | {name: [["x"], ["y"]]}
    parquet.write_table(pa.table(columns), tmp_path / "p.parquet")
    with pytest.raises(InputError, match=f"the column {name} of .* not names"):
        data.read(tmp_path / "p.parquet")
