"""What several tests share: small records, and one simulation."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # for sanctionspairs_records

from sanctionspairs import data
from sanctionspairs.simulate import simulate


@pytest.fixture(scope="session")
def small():
    """A simulation of 800 pairs, made once."""
    return simulate(800, seed=7)


@pytest.fixture(scope="session")
def embedded():
    """The embedded default, read once."""
    return data.default()
