"""Signals over the paper's 101,843 rows, import of small files, and the page of a model with 2,000 results.

Times are processor time of the process, all threads together: other work on the machine does not count, and a second
core gives no advantage over the single-threaded peers.
"""

import asyncio
import json
import resource
import subprocess
import sys
import time

import duckdb
import pytest

from evalcards import baselines
from evalcards.generator import generate
from evalcards.importers import eee
from evalcards.importing import import_files
from evalcards.scale import get, write_corpus
from evalcards.schema import read_log
from evalcards.store import Store
from evalcards.warehouse import compute
from evalcards.web import app

ROWS = 101_843
PEAK = """
import resource, sys
from evalcards.store import Store
from evalcards.warehouse import compute
with Store(sys.argv[1]) as store:
    compute(store.cursor())
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)
"""


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    """The paper's size, in a store file."""
    path = tmp_path_factory.mktemp("full") / "cards.duckdb"
    corpus = generate(5498, 635, ROWS)
    with Store(path) as store:
        store.add_cards(corpus.benchmark_cards())
        for start in range(0, len(corpus.documents), 5000):
            store.add([read_log(document) for document in corpus.documents[start : start + 5000]])
    done = subprocess.run([sys.executable, "-c", PEAK, str(path)], capture_output=True, text=True, check=True)
    with Store(path) as store:
        yield store, float(done.stdout.splitlines()[-1])


@pytest.mark.benchmark(group=f"signals over {ROWS:,} rows, processor time", timer=time.process_time)
def test_sql(benchmark, full):
    store, peak = full
    cursor = store.cursor()
    compute(cursor)
    benchmark.pedantic(compute, (cursor,), rounds=5)
    benchmark.extra_info.update(label="DuckDB SQL", target=">= 5x the loop, <= 1.5 GB", peak_GB=peak)


@pytest.mark.benchmark(group=f"signals over {ROWS:,} rows, processor time", timer=time.process_time)
def test_loop(benchmark, full):
    store, _ = full
    rows = baselines.rows_of(store)
    _, flags = benchmark.pedantic(baselines.loop_signals, (rows,), rounds=2)
    found = store.fetch("SELECT group_id, has_variant_divergence, has_cross_party_divergence FROM group_signals")
    same = all(bool(flags[g].variant) == v and bool(flags[g].cross) == c for g, v, c in found)
    assert same
    benchmark.extra_info.update(label="Python loop in the style of the published code", role="peer", same_flags=same)


@pytest.mark.benchmark(group=f"signals over {ROWS:,} rows, processor time", timer=time.process_time)
@pytest.mark.filterwarnings("ignore")
def test_pandas(benchmark, full):
    store, _ = full
    benchmark.pedantic(baselines.pandas_signals, (store,), rounds=1)
    benchmark.extra_info.update(label="pandas, comparability only, from the store")


@pytest.mark.benchmark(group="signals are linear in rows, processor time", timer=time.process_time)
@pytest.mark.parametrize("parts", [4, 2, 1])
def test_linear(benchmark, full, parts):
    store, _ = full
    chosen = store.cursor().execute(f"SELECT * FROM results WHERE group_id % {parts} = 0").to_arrow_table()
    with duckdb.connect() as connection:
        connection.register("chosen", chosen)
        connection.execute("CREATE TABLE results AS FROM chosen")
        compute(connection)
        benchmark.pedantic(compute, (connection,), rounds=5)
    per_row = benchmark.stats.stats.median / chosen.num_rows * 1e6
    benchmark.extra_info.update(label=f"{chosen.num_rows:,} rows", microseconds_per_row=per_row)
    if parts == 1:
        benchmark.extra_info["role"] = "peer"


@pytest.fixture(scope="module")
def small_files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    write_corpus(folder / "records", 1500, 300, 6000)
    return folder / "records", sum(1 for _ in (folder / "records").rglob("*.json"))


@pytest.mark.benchmark(group="import of small EEE files, processor time", timer=time.process_time)
def test_import(benchmark, small_files):
    folder, n = small_files

    def load():
        with Store(None) as store:
            return import_files(store, [folder])

    load()
    benchmark.pedantic(load, rounds=3)
    rate = n / benchmark.stats.stats.median
    benchmark.extra_info.update(target=">= 1,000 files/s", files=n, files_per_second=rate)


@pytest.mark.benchmark(group="import of small EEE files, processor time", timer=time.process_time)
def test_read_only(benchmark, small_files):
    folder, n = small_files
    benchmark.pedantic(lambda: eee(folder), rounds=2)
    benchmark.extra_info.update(label="reading and checking alone", files_per_second=n / benchmark.stats.stats.median)


def import_300(folder, store_folder, **how):
    files = sorted(folder.rglob("*.json"))[:300]
    with Store(store_folder / f"{len(list(store_folder.iterdir()))}.duckdb") as store:
        assert import_files(store, files, **how).files == 300


@pytest.mark.benchmark(group="300 small files into a store file, processor time", timer=time.process_time)
def test_batched(benchmark, small_files, tmp_path):
    benchmark.pedantic(import_300, (small_files[0], tmp_path), rounds=3)
    benchmark.extra_info.update(label="500 files a transaction")


@pytest.mark.benchmark(group="300 small files into a store file, processor time", timer=time.process_time)
def test_one_transaction_per_file(benchmark, small_files, tmp_path):
    benchmark.pedantic(import_300, (small_files[0], tmp_path), {"batch": 1}, rounds=1)
    benchmark.extra_info.update(label="one transaction per file", role="peer")


@pytest.fixture(scope="module")
def big_model():
    document = generate(2, 60, 100, seed=4).documents[0]
    first = document["evaluation_results"][0]
    rows = []
    for number in range(2000):
        metric = first["metric_config"] | {"additional_details": {"slice": f"part {number}"}}
        rows.append(first | {"metric_config": metric})
    store = Store(None)
    store.add([read_log(json.loads(json.dumps(document | {"evaluation_results": rows})))])
    store.signals()
    return app(store), document["model_info"]["id"]


@pytest.mark.benchmark(group="page of a model with 2,000 results, processor time", timer=time.process_time)
def test_page(benchmark, big_model):
    application, name = big_model
    path = f"/model/{name}"
    asyncio.run(get(application, path))
    answer = benchmark.pedantic(lambda: asyncio.run(get(application, path)), rounds=10)
    assert answer.body.count(b"data-result-id") == 2000
    benchmark.extra_info.update(target="<= 300 ms", bytes=len(answer.body))
    benchmark.extra_info["peak_GB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
