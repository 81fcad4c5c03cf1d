"""What every test shares: it works in a place of its own, and looks at nothing else."""

import os
import sys
import tempfile
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # `support` is imported by tests and children alike

import places

os.environ[places.MARK] = places.MINE  # before the first child


BEGAN = time.monotonic()


def pytest_addoption(parser):
    parser.addoption(
        "--slow-within",
        type=float,
        metavar="MINUTES",
        help="run the slow tests after all others, and skip those that would begin later than this",
    )


def pytest_collection_modifyitems(config, items):
    if config.getoption("--slow-within") is not None:
        items.sort(key=lambda item: item.get_closest_marker("slow") is not None)


def pytest_runtest_setup(item):
    limit = item.config.getoption("--slow-within")
    is_slow = item.get_closest_marker("slow") is not None
    if limit is not None and is_slow and time.monotonic() - BEGAN > 60 * limit:
        pytest.skip("there is no time left for slow tests")


@pytest.fixture(autouse=True)
def temporary_directory(tmp_path_factory, monkeypatch):
    """A directory for temporary files that is this test's alone, and its children's."""
    own = tmp_path_factory.mktemp("t")  # short: paths of sockets may not be long
    monkeypatch.setenv("TMPDIR", str(own))
    monkeypatch.setattr(tempfile, "tempdir", str(own))
    return own
