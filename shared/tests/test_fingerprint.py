"""A digest changes when the code behind a result changes, and only then."""

import importlib
import sys

import pytest

from papers_shared._fingerprint import source_digest

FILES = {
    "__init__": "",
    "method": """
        import math
        SCALE = 2.0
        UNUSED = 3
        class Base:
            def base(self): return 1
        class Model(Base):
            def __init__(self): self.w = weight()
            @property
            def size(self): return SCALE
        def weight(): return 1.5
        def far(): return 4
        def unrelated(): return 5
        """,
    "config": """
        import dataclasses
        @dataclasses.dataclass(frozen=True)
        class Config:
            lr: float = 0.1
        CONFIG = Config()
        """,
    "claims": """
        import functools
        from fingerprinted import method
        from fingerprinted.config import CONFIG
        from fingerprinted.method import Model
        SETS = {"b", "a", "c"}
        def helper(x): return Model().w + x
        @functools.lru_cache
        def cached(): return method.far()
        def claim(ctx):
            inner = lambda: cached() + CONFIG.lr
            return [helper(y) for y in SETS], inner()
        def make(n):
            def closure(): return n
            return closure
        """,
}


@pytest.fixture
def digest(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def of(name="claim", *call, **changes):
        import linecache
        import textwrap

        folder = tmp_path / "fingerprinted"
        folder.mkdir(exist_ok=True)
        for file, text in FILES.items():
            for old, new in changes.get(file, []):
                assert old in text
                text = text.replace(old, new)
            (folder / f"{file}.py").write_text(textwrap.dedent(text))
        for module in [name for name in sys.modules if name.startswith("fingerprinted")]:
            del sys.modules[module]
        linecache.clearcache()
        importlib.invalidate_caches()
        function = getattr(importlib.import_module("fingerprinted.claims"), name)
        return source_digest(function(*call) if call else function)

    yield of
    for module in [name for name in sys.modules if name.startswith("fingerprinted")]:
        del sys.modules[module]


@pytest.mark.parametrize(
    "changes",
    [
        {"claims": [("inner()", "inner() * 2")]},
        {"claims": [(".w + x", ".w - x")]},
        {"claims": [('"c"}', '"d"}')]},
        {"method": [("return 1.5", "return 1.6")]},
        {"method": [("SCALE = 2.0", "SCALE = 2.5")]},
        {"method": [("return 4", "return 44")]},
        {"method": [("def base(self): return 1", "def base(self): return 2")]},
        {"config": [("0.1", "0.2")]},
    ],
)
def test_a_change_anywhere_in_what_is_reached_changes_the_digest(digest, changes):
    assert digest(**changes) != digest()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"method": [("return 5", "return 55")]},
        {"method": [("UNUSED = 3", "UNUSED = 4")]},
        {"claims": [("return closure", "return  closure")]},
    ],
)
def test_a_change_elsewhere_does_not(digest, changes):
    assert digest(**changes) == digest()


def test_enclosed_values_count(digest):
    assert digest("make", 1) != digest("make", 2)
    assert digest("make", 1) == digest("make", 1)


def test_functions_without_a_source_file_are_told_apart_by_their_code():
    space = {"__name__": "shell"}
    exec("def f(x): return x + 1\ndef g(x): return x * 2", space)
    assert source_digest(space["f"]) != source_digest(space["g"])


def test_builtins_and_libraries_are_not_followed():
    import json

    assert len(source_digest(json.dumps)) == 16
    assert len(source_digest(len)) == 16
