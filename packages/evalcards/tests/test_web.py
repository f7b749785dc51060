"""The monitor: what pages hold, how they answer to hostile names, and how a person uses them in a real browser."""

import asyncio
import json
import re
import threading
import time
from urllib.parse import quote, urlencode

import pytest
import uvicorn

from evalcards import data
from evalcards.generator import generate
from evalcards.render import ORDER, card
from evalcards.scale import get
from evalcards.schema import read_log
from evalcards.signals.completeness import Field
from evalcards.store import Store
from evalcards.views import benchmarks_list, models_list
from evalcards.web import HEADERS, app

IDS = re.compile(r'data-result-id="([^"]+)" data-value="([^"]+)"')
FIELDS = re.compile(r'data-field="([a-z]+)"')


class Client:
    """Ask the application without a server."""

    def __init__(self, application):
        self.application = application

    def get(self, path, params=None):
        path = quote(path, safe="/?=&%") + (("&" if "?" in path else "?") + urlencode(params) if params else "")
        return asyncio.run(get(self.application, path))


@pytest.fixture(scope="module")
def client(store):
    return Client(app(store))


def test_every_page_answers_with_the_headers(client, store):
    model, benchmark = models_list(store)[3]["id"], benchmarks_list(store)[0]["id"]
    row, link = store.fetch("SELECT row_id, link FROM results JOIN groups USING (group_id) ORDER BY row_id LIMIT 1")[0]
    pages = [
        "/",
        "/models",
        "/models?q=a&page=2",
        "/benchmarks",
        f"/model/{model.replace('/', '__')}",
        f"/model/{model}",
        f"/benchmark/{benchmark}",
        f"/benchmark/{benchmark}?model={model}",
        f"/row/{row}",
        f"/triple/{link}",
        "/compare",
        "/snapshots",
        "/failures",
        "/glossary",
        "/healthz",
        "/rollup.json",
        "/static/style.css",
        "/static/app.js",
    ]
    for page in pages:
        for mode in ("research", "policy"):
            answer = client.get(page, {"mode": mode})
            expected = 404 if page.endswith(f"?model={model}") and answer.status == 404 else 200
            assert answer.status == expected, page
            assert all(answer.headers[name.lower()] == value for name, value in HEADERS.items())
            assert "style=" not in answer.body.decode() or not page.startswith("/model")


@pytest.mark.parametrize("page", ["/nothing", "/model/none", "/benchmark/none", "/row/none", "/triple/none"])
def test_what_is_not_there_is_404_in_plain_words(client, page):
    answer = client.get(page)
    assert answer.status == 404
    assert "Not found" in answer.body.decode()


def test_both_modes_hold_the_same_results_in_another_order(client, store):
    for kind, names in (
        ("model", [m["id"] for m in models_list(store)][:8]),
        ("benchmark", [b["id"] for b in benchmarks_list(store)][:4]),
    ):
        for name in names:
            pages = {
                mode: client.get(f"/{kind}/{name}", params={"mode": mode}).body.decode()
                for mode in ("research", "policy")
            }
            found = {mode: set(IDS.findall(page)) for mode, page in pages.items()}
            assert found["research"] == found["policy"]
            fields = {mode: FIELDS.findall(page) for mode, page in pages.items()}
            assert sorted(fields["research"]) == sorted(fields["policy"])
            assert fields["research"][:5] != fields["policy"][:5]
            wanted = store.fetch(
                "SELECT count(*) FROM results JOIN groups USING (group_id) WHERE model_id = ? OR benchmark = ?",
                [name, name],
            )
            assert len(found["research"]) == wanted[0][0]
    assert set(ORDER["research"]) == set(ORDER["policy"])


def test_results_are_never_ordered_by_score(client, store):
    benchmark = max(benchmarks_list(store), key=lambda b: b["rows"])["id"]
    values = [float(v) for _, v in IDS.findall(client.get(f"/benchmark/{benchmark}?mode=policy").body.decode())]
    assert values not in (sorted(values), sorted(values, reverse=True))


def test_downloads_are_the_cards(client, store):
    name = models_list(store)[0]["id"]
    for kind in ("html", "md", "json"):
        answer = client.get(f"/card/model.{kind}", params={"model": name, "mode": "policy"})
        assert answer.body.decode() == card(store, name, mode="policy", fmt=kind)
        assert "attachment" in answer.headers["content-disposition"]
    assert len(json.loads(client.get(f"/logs/{name}.json").body)) == len(store.logs(name))


def test_a_standalone_card_loads_and_runs_nothing(store):
    page = card(store, models_list(store)[0]["id"])
    assert "<script" not in page
    assert not re.search(r'(?:src|href)="(?!#)', page)
    assert "default-src 'none'" in page


def test_search_goes_to_the_one_thing_or_to_a_list(client, store):
    name = models_list(store)[0]["id"]
    answer = client.get("/search", params={"q": name.upper()})
    assert answer.headers["location"].startswith("/model/")
    answer = client.get("/search", params={"q": "zz<b>"})
    assert answer.headers["location"].startswith("/models?q=zz%3Cb%3E")
    assert "zz&lt;b&gt;" in client.get(answer.headers["location"]).body.decode()


def test_compare_page_gives_a_verdict_or_the_reason(client, store):
    models = [m["id"] for m in models_list(store)[:2]]
    page = client.get("/compare", params={"a": models[0], "b": "none", "on": "x"}).body.decode()
    assert "no results of a model" in page


def test_a_triples_parties_are_written_as_their_sources_do(record):
    held = Store(None)
    for identity, organisation, score in (("a", "Lab  One", 0.5), ("b", "LAB two", 0.9)):
        held.add([read_log(record(score, identity=identity, organisation=organisation))])
    held.signals()
    link = held.fetch("SELECT link FROM groups")[0][0]
    page = Client(app(held)).get(f"/triple/{link}").body.decode()
    assert '<th scope="row">Lab  One</th>' in page
    assert '<th scope="row">LAB two</th>' in page


def test_a_dated_model_is_a_variant_of_its_family(record):
    held = Store(None)
    held.add([read_log(record(model="a/b-20250101-thinking"))])
    held.signals()
    page = Client(app(held)).get("/model/a__b-20250101-thinking").body.decode()
    assert "variant <b>20250101</b>, thinking, of <b>a/b</b>" in page


def test_the_number_of_fields_is_that_of_the_users_schema(record):
    held = Store(None)
    held.add([read_log(record())])
    held.reporting_schema((Field("benchmark_card.benchmark_details.name", "full", ()),))
    held.signals()
    for path in ("/", "/model/example__one"):
        page = Client(app(held)).get(path).body.decode()
        assert "of 1 fields" in page
        assert "28 fields" not in page


@pytest.fixture(scope="module")
def site(corpus):
    """The monitor on a real port, with hostile names and 1,000 rows of one model."""
    hostile = '<img src=x onerror="document.title=1">'
    base = generate(1, 20, 10, seed=9).documents[0]
    rows = []
    for number in range(1000):
        metric = base["evaluation_results"][0]["metric_config"] | {
            "additional_details": {"slice": f"part {number:04d}"}
        }
        rows.append(base["evaluation_results"][0] | {"evaluation_name": "Big", "metric_config": metric})
    big = dict(base, evaluation_id="big", evaluation_results=rows)
    big["model_info"] = dict(base["model_info"], id="big/model")
    bad = dict(base, evaluation_id="bad", model_info=dict(base["model_info"], id=f"bad/{hostile}"))
    with Store(None) as held:
        held.add_cards([*corpus.benchmark_cards(), *data.benchmark_cards()])
        held.add([*corpus.logs(), read_log(big), read_log(bad)])
        server = uvicorn.Server(uvicorn.Config(app(held), host="127.0.0.1", port=0, log_level="error"))
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.02)
        port = server.servers[0].sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}", held
        server.should_exit = True
        thread.join(10)


@pytest.fixture(scope="module")
def browser():
    import shutil

    playwright = pytest.importorskip("playwright.sync_api")
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("needs chromium")
    with playwright.sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture
def page(browser):
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    found = context.new_page()
    found.errors = []
    found.on("pageerror", lambda error: found.errors.append(str(error)))
    found.on("console", lambda message: found.errors.append(message.text) if message.type == "error" else None)
    found.set_default_timeout(60_000)
    yield found
    context.close()
    assert found.errors == []


@pytest.mark.needs("chromium")
def test_a_person_reads_filters_and_drills_down(page, site):
    address, held = site
    name = max((m for m in models_list(held) if m["id"] != "big/model"), key=lambda m: m["diverging"])["id"]
    page.goto(address)
    page.keyboard.press("/")
    page.keyboard.type(name)
    page.keyboard.press("Enter")
    page.wait_for_url("**/model/**")
    assert page.locator("h1").inner_text() == name
    first = page.locator("section.part h2").first.inner_text()
    page.keyboard.press("m")
    page.wait_for_url("**mode=policy**")
    assert page.locator("section.part h2").first.inner_text() != first
    rows = page.locator("table.results tbody tr:visible")
    total = rows.count()
    page.get_by_label("diverging").check()
    assert 0 < rows.count() < total
    assert page.locator(".count").inner_text() == f"{rows.count()} of {total} results"
    assert "diverging=1" in page.url
    page.reload()
    assert rows.count() < total  # the address holds the filter
    page.locator("#mode-research").click()
    page.wait_for_url("**mode=research**")
    assert page.get_by_label("diverging").is_checked()
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/row/**")
    page.get_by_role("link", name="Side by side").click()
    page.wait_for_url("**/triple/**")
    assert "apart" in page.locator("p.lead").inner_text()
    page.go_back()
    page.go_back()
    page.wait_for_url("**/model/**")
    assert rows.count() < total  # and so does the way back


@pytest.mark.needs("chromium")
def test_a_thousand_rows_filter_sort_and_print(page, site):
    address, _ = site
    page.goto(f"{address}/model/big__model")

    def shown():
        """How many rows can be seen; asked in the page, where a thousand questions cost nothing."""
        rows = "[...document.querySelectorAll('table.results tbody tr')]"
        return page.evaluate(f"{rows}.filter((row) => row.checkVisibility()).length")

    assert shown() == 1000
    page.keyboard.press("f")
    page.keyboard.type("part 0042")
    assert shown() == 1
    value = page.locator("table.results tbody tr:not([hidden]) td.num").inner_text().split("±")[0].strip()
    page.locator("form.filters input[type=search]").fill(value)  # names are looked for, not digits of scores
    assert shown() < 1000
    names = page.evaluate(
        "[...document.querySelectorAll('table.results tbody tr:not([hidden]) th')].map((head) => head.textContent)"
    )
    assert all(value in name for name in names)
    page.get_by_role("button", name="Clear").click()
    page.wait_for_function("document.querySelector('.count').value === '1,000 results'")
    head = page.get_by_role("button", name="Benchmark")
    head.click()
    head.click()
    assert "part 0999" in page.locator("table.results tbody tr").first.inner_text()
    page.keyboard.press("?")
    assert page.locator("#help").is_visible()
    page.keyboard.press("Escape")
    page.locator("table.results tbody tr").nth(500).scroll_into_view_if_needed()
    tops = [page.locator(part).first.bounding_box() for part in (".bar-top", "table.results thead th")]
    assert abs(tops[0]["y"] + tops[0]["height"] - tops[1]["y"]) < 2  # the header stays below the bar
    page.emulate_media(media="print")
    # Chromium leaves buttons out of the header that it repeats on every page.
    sorter = page.locator("table.results .sorter").first
    assert sorter.evaluate("(button) => getComputedStyle(button).display") == "contents"
    assert page.locator(".bar-top").is_hidden()
    assert page.locator("table.results").is_visible()
    assert len(page.pdf()) > 10_000
    page.emulate_media(media="screen")
    page.goto(f"{address}/models")
    tops = [page.locator(f"table.results {part}").first.bounding_box()["y"] for part in ("thead th", "tbody th")]
    assert tops[0] + 20 < tops[1]  # and stands over no row before anything is scrolled


@pytest.mark.needs("chromium")
def test_hostile_names_run_nothing_in_the_browser(page, site):
    address, held = site
    name = next(m["id"] for m in models_list(held) if m["id"].startswith("bad/"))
    for path in ("/models?q=bad", "/model/" + name.replace("/", "__").replace('"', "%22"), "/failures"):
        page.goto(address + path)
        assert page.title() != "1"
        assert page.locator("main img").count() == 0
        assert "onerror" in page.locator("main").inner_text()


@pytest.mark.needs("chromium")
def test_a_phone_shows_it_without_sideways_scrolling(browser, site):
    address, _ = site
    context = browser.new_context(viewport={"width": 390, "height": 800})
    page = context.new_page()
    for path in ("/", "/glossary", "/compare", "/models", "/benchmarks", "/failures", "/model/big__model"):
        page.goto(address + path)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth + 1"), path
    context.close()
