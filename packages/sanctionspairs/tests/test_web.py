"""The review queue in a real browser: two records, keys, undo, right-to-left names, and nobody else's clicks."""

import socket
import subprocess
import sys
import threading
import time

import httpx
import pytest
import uvicorn

from papers_shared.errors import InputError
from sanctionspairs.review import Queue, make_queue
from sanctionspairs.web import make_app, serve


def record(id, name, **properties):
    return {
        "id": id,
        "caption": name,
        "schema": "Person",
        "datasets": ["us_ofac_sdn"],
        "properties": {"name": [name], **{k: [v] for k, v in properties.items()}},
    }


ITEMS = [
    {"left": record("a", "محمد عبد الله", birthDate="1970-01-02", country="sy"),
     "right": record("b", "Mohammed Abdullah", birthDate="1970", country="sy"),
     "p": 0.55, "reasons": {"name": 1.25, "birth date": 0.4}, "tags": ["cross_script", "dob_precision"]},
    {"left": record("c", "<img src=x onerror=document.title='owned'>"), "right": record("d", "Ivan"), "p": 0.9},
    {"left": record("e", "Maria Garcia", birthDate="1948"),
     "right": record("f", "Maria Garcia", birthDate="1990"), "p": 0.7},
]  # fmt: skip


@pytest.fixture
def served(tmp_path):
    path = make_queue(tmp_path / "queue.jsonl", ITEMS)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = uvicorn.Server(
        uvicorn.Config(make_app(Queue(path), user="anna"), host="127.0.0.1", port=port, log_level="error")
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    deadline = time.monotonic() + 30
    while not server.started and time.monotonic() < deadline:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{port}", path
    server.should_exit = True
    thread.join(10)


@pytest.mark.needs("chromium")
def test_a_person_decides_and_takes_back_in_chromium(served, tmp_path):
    import shutil

    from playwright.sync_api import expect, sync_playwright

    url, path = served
    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport={"width": 1280, "height": 760})
        page.set_default_timeout(20_000)
        errors = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(url)
        expect(page.locator("thead")).to_contain_text("محمد عبد الله")
        expect(page.locator("thead")).to_contain_text("Mohammed Abdullah")
        expect(page.locator("tr.differ")).to_have_count(2)
        expect(page.locator("tr.same")).to_have_count(1)
        expect(page.locator("#why")).to_contain_text("+1.25")
        expect(page.locator("#count")).to_have_text("3 of 3 to do")
        direction = page.locator("td.value").first.evaluate("e => getComputedStyle(e).direction")
        assert direction == "rtl"
        page.screenshot(path=tmp_path / "review.png")
        page.keyboard.press("y")
        expect(page.locator("#count")).to_have_text("2 of 3 to do")
        assert Queue(path).decided[0].judgement == "positive"
        assert Queue(path).decided[0].user == "anna"
        page.keyboard.press("n")
        expect(page.locator("#count")).to_have_text("1 of 3 to do")
        page.keyboard.press("z")
        expect(page.locator("#count")).to_have_text("2 of 3 to do")
        page.get_by_role("button", name="Unsure").click()
        expect(page.locator("#count")).to_have_text("1 of 3 to do")
        expect(page.locator("thead")).to_contain_text("<img")
        page.keyboard.press("u")
        expect(page.locator("#pair")).to_contain_text("Nothing left")
        assert page.title() == "Review pairs"
        page.reload()
        expect(page.locator("#pair")).to_contain_text("Nothing left")
        browser.close()
    assert errors == []
    assert {n: d.judgement for n, d in Queue(path).decided.items()} == {0: "positive", 2: "unsure", 1: "unsure"}
    assert (tmp_path / "review.png").stat().st_size > 10_000


def test_only_the_page_itself_may_decide(served):
    url, path = served
    body = {"item": 0, "judgement": "positive"}
    assert httpx.post(f"{url}/decide", json=body).status_code == 403
    token = httpx.get(url).text.split('const token = "')[1].split('"')[0]
    headers = {"x-token": token}
    assert httpx.post(f"{url}/decide", json={"item": 99, "judgement": "positive"}, headers=headers).status_code == 400
    assert httpx.post(f"{url}/decide", content=b"{", headers=headers).status_code == 400
    assert httpx.get(url, headers={"host": "evil.example"}).status_code == 400
    assert Queue(path).decided == {}
    assert httpx.post(f"{url}/decide", json=body, headers=headers).json()["todo"] == 2


def test_a_bad_address_is_one_line(tmp_path):
    path = make_queue(tmp_path / "q.jsonl", ITEMS)
    with pytest.raises(InputError, match="HOST:PORT"):
        serve(Queue(path), "8765")


@pytest.mark.needs("tmux")
def test_a_person_decides_in_a_real_terminal(tmp_path):
    path = make_queue(tmp_path / "queue.jsonl", ITEMS)
    name = f"sanctionspairs-{tmp_path.name}"
    command = (
        f"{sys.executable} -W ignore -c 'from sanctionspairs.cli import app; app()' review {path} --user ben; sleep 60"
    )

    def tmux(*arguments):
        return subprocess.run(["tmux", "-L", name, *arguments], capture_output=True, text=True, check=True).stdout

    def wait_for(text):
        deadline = time.monotonic() + 240
        while time.monotonic() < deadline:
            screen = tmux("capture-pane", "-p", "-t", "r")
            if text in screen:
                return screen
            time.sleep(0.1)
        raise AssertionError(screen)

    tmux("new-session", "-d", "-s", "r", "-x", "120", "-y", "45", command)
    try:
        screen = wait_for("z undo")
        assert "Mohammed Abdullah" in screen
        assert "kind: cross_script, dob_precision" in screen
        tmux("send-keys", "-t", "r", "y")
        wait_for("2 to do")
        tmux("send-keys", "-t", "r", "z")
        wait_for("took back positive")
        tmux("send-keys", "-t", "r", "n")
        wait_for("→ negative")
        tmux("send-keys", "-t", "r", "q")
        wait_for("left in")
    finally:
        tmux("kill-server")
    assert {n: d.judgement for n, d in Queue(path).decided.items()} == {0: "negative"}
