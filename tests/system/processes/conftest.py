"""What tests of child processes share."""

import pytest

from remuda.system.processes import client as forkserver


@pytest.fixture(params=["forked", "spawned"])
def way(request, monkeypatch):
    """How children are made: forked from the server, or spawned where there can be none."""
    if request.param == "spawned":
        monkeypatch.setattr(forkserver.ProcessState, "why_not", "the test wants it so")
        monkeypatch.setattr(forkserver.ProcessState, "server", None)
    return request.param
