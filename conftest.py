"""What all tests of the workspace share: no network, deterministic hypothesis, honest skips, comparable benchmarks."""

from __future__ import annotations

import ipaddress
import os
import shutil
import socket
from collections.abc import Callable, Iterator
from typing import Any

import hypothesis
import pytest

hypothesis.settings.register_profile("workspace", derandomize=True, deadline=None, database=None)
hypothesis.settings.load_profile("workspace")


def pytest_configure(config: pytest.Config) -> None:
    """Declare the markers of this file."""
    config.addinivalue_line("markers", "needs(*tools): the test drives these programs")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose program is missing, and say which; in CI, which installs them all, fail instead."""
    for mark in item.iter_markers("needs"):
        missing = [tool for tool in mark.args if shutil.which(tool) is None]
        if missing and os.environ.get("CI"):
            pytest.fail(f"{' and '.join(missing)} not found: name its Debian package in [tool.paper] debian")
        if missing:
            pytest.skip(f"needs {' and '.join(missing)}")


def _is_local(address: object) -> bool:
    if not isinstance(address, tuple):
        return True
    host = str(address[0])
    if host in {"localhost", ""}:
        return True
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return False


@pytest.fixture(scope="session", autouse=True)
def no_network() -> Iterator[None]:
    """Let tests and their fixtures reach this machine only, so that none depends on a remote thing by accident."""

    def local(call: Callable[..., Any]) -> Callable[..., Any]:
        def connect(self: socket.socket, address: object) -> Any:
            if not _is_local(address):
                raise OSError(f"tests reach no network, but something connects to {address}")
            return call(self, address)

        return connect

    with pytest.MonkeyPatch.context() as patched:
        for name in ("connect", "connect_ex"):
            patched.setattr(socket.socket, name, local(getattr(socket.socket, name)))
        yield


@pytest.hookimpl(optionalhook=True)
def pytest_benchmark_update_machine_info(config: pytest.Config, machine_info: dict) -> None:
    """Keep what explains a timing and nothing that names the machine."""
    cpu = machine_info.get("cpu", {}).get("brand_raw", "")
    machine_info.clear()
    machine_info.update(cpu=cpu, cores=os.cpu_count())
