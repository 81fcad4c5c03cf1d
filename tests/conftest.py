"""What every test shares: it works in a place of its own, and looks at nothing else."""

import os
import sys
import tempfile
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # `support` is imported by tests and children alike

import places

os.environ[places.MARK] = places.MINE  # before the first child


@pytest.fixture(autouse=True)
def temporary_directory(tmp_path_factory, monkeypatch):
    """A directory for temporary files that is this test's alone, and its children's."""
    own = tmp_path_factory.mktemp("t")  # short: paths of sockets may not be long
    monkeypatch.setenv("TMPDIR", str(own))
    monkeypatch.setattr(tempfile, "tempdir", str(own))
    return own
