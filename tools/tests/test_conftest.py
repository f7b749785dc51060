"""What all tests share does what it says: it is tried on a small test file, in a pytest of its own."""

import os
import shutil
import subprocess
import sys

import pytest

from papers import ROOT

TESTS = """
import socket
import pytest

@pytest.mark.needs("python-of-tomorrow")
def test_tool():
    raise AssertionError("must not run")

@pytest.mark.needs("sh")
def test_tool_that_is_there():
    pass

@pytest.fixture(scope="module")
def far():
    with socket.socket() as s, pytest.raises(OSError, match="tests reach no network"):
        s.connect(("192.0.2.1", 80))

@pytest.mark.parametrize("call", ["connect", "connect_ex"])
@pytest.mark.parametrize("address", [("192.0.2.1", 80), ("example.org", 80), ("2001:db8::1", 80, 0, 0)])
def test_far(far, call, address):
    with socket.socket() as s, pytest.raises(OSError, match="tests reach no network"):
        getattr(s, call)(address)

@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_near(host):
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection((host, server.getsockname()[1])).close()
"""


@pytest.mark.parametrize(
    ("ci", "says", "outcome"),
    [
        (None, "needs python-of-tomorrow", "9 passed, 1 skipped"),
        ("true", "python-of-tomorrow not found: name its Debian package in [tool.paper] debian", "9 passed, 1 error"),
    ],
)
def test_no_network_and_missing_tools(tmp_path, ci, says, outcome):
    shutil.copy(ROOT / "conftest.py", tmp_path)
    (tmp_path / "test_it.py").write_text(TESTS)
    environment = {name: value for name, value in os.environ.items() if name != "CI"} | ({"CI": ci} if ci else {})
    command = [sys.executable, "-m", "pytest", "-q", "-ra", "-c", ROOT / "pyproject.toml", "--rootdir", tmp_path, "."]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert says in done.stdout
    assert outcome in done.stdout.splitlines()[-1]
