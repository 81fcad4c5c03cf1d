"""What every test shares: it works in a place of its own, and looks at nothing else."""

import gc
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

import hypothesis
import pytest
import torch

# Children of tests search here too: games are named by modules in `support`, or by tests.
sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent / "support"))

import kinds
import order
import places
import refusals

os.environ[places.MARK] = places.MINE  # before the first child
os.environ.setdefault("XDG_STATE_HOME", tempfile.mkdtemp(prefix="remuda-tests-"))  # of a key


hypothesis.settings.register_profile("same", derandomize=True, print_blob=True)
hypothesis.settings.register_profile("drawn", print_blob=True)

BEGAN = time.monotonic()
FREEZE_COUNT = gc.get_freeze_count

os.fsync = lambda descriptor: None  # what tests write need not survive a power failure


def pytest_addoption(parser):
    parser.addoption(
        "--slow-within",
        type=float,
        metavar="MINUTES",
        help="run the slow tests after all others, in an order drawn by the commit that is tested, "
        "and skip those that would begin later than this",
    )

    parser.addoption(
        "--update-messages",
        action="store_true",
        help="write the messages of refused input to tests/messages.txt instead of comparing them",
    )


def pytest_configure(config):
    if config.getoption("--update-messages") and not hasattr(config, "workerinput"):
        os.environ[refusals.UPDATES] = tempfile.mkdtemp()
    # A job of a script's background ignores Ctrl-C, and so would every program that a test starts.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Tests run beside each other, a process for each core: two threads of each would spin while
    # they wait for one another. What a run does in processes of its own is not touched.
    torch.set_num_threads(1)
    # The quick suite finds on every machine what it finds on one; everything together looks
    # further each time.
    hypothesis.settings.load_profile("same" if config.getoption("markexpr") else "drawn")
    # Workers of pytest-xdist take it from here: all must come to the same order.
    if config.getoption("--slow-within") is not None and not hasattr(config, "workerinput"):
        os.environ[order.ORDER] = order.origin(config.rootpath)


def pytest_unconfigure(config):
    if config.getoption("--update-messages") and not hasattr(config, "workerinput"):
        refusals.update(Path(os.environ.pop(refusals.UPDATES)))


def is_slow(item):
    return item.get_closest_marker("slow") is not None


@pytest.hookimpl(tryfirst=True)  # before markers choose
def pytest_collection_modifyitems(config, items):
    unknown = {}
    for item in items:
        marker = item.get_closest_marker("slow_cases")
        if marker is not None:
            unknown.setdefault(item.nodeid.split("[")[0], set(marker.args)).discard(
                item.callspec.id
            )
            if item.callspec.id in marker.args:
                item.add_marker("slow")
    whole = not any("::" in word for word in config.args)  # else cases may be left out
    wrong = [f"{test}: {sorted(names)}" for test, names in unknown.items() if names and whole]
    if wrong:
        raise pytest.UsageError("slow_cases names cases that do not exist\n" + "\n".join(wrong))
    if config.getoption("--slow-within") is not None:
        origin = os.environ[order.ORDER]
        items.sort(key=lambda item: order.key(item.nodeid, is_slow(item), origin))


def pytest_collection_finish(session):
    """Each run collects garbage; without this it visits 660,000 objects, for half a second."""
    gc.collect()
    gc.freeze()
    number = gc.get_freeze_count()
    gc.get_freeze_count = lambda: number  # counting takes a tenth of a second


def pytest_runtest_setup(item):
    limit = item.config.getoption("--slow-within")
    if limit is not None and is_slow(item) and time.monotonic() - BEGAN > 60 * limit:
        pytest.skip("there is no time left for slow tests")


@pytest.fixture(autouse=True)
def unit_tests_start_no_process(request):
    if not kinds.is_unit(request.node):
        yield
        return
    started = []
    with pytest.MonkeyPatch.context() as patch:
        kinds.watch(patch, started.append)
        yield
    if started and (folder := os.environ.get("REMUDA_TEST_KINDS")):
        with open(Path(folder) / str(os.getpid()), "a") as file:
            file.write(f"{request.node.nodeid}\t{started[0]}\n")
    elif started:
        pytest.fail(f"it starts {started[0]}: mark it with one of {', '.join(kinds.KINDS)}")


@pytest.fixture
def nothing_is_frozen(monkeypatch):
    """The garbage collector visits all objects, as in a program."""
    monkeypatch.setattr(gc, "get_freeze_count", FREEZE_COUNT)
    gc.unfreeze()
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def children_are_forked():
    """A test in which the fork server dies must not leave the next ones without one."""
    yield
    if client := sys.modules.get("remuda.system.processes.client"):
        client.ProcessState.why_not = ""


@pytest.fixture(autouse=True)
def modules_are_found_where_they_were():
    """Opening a run may extend `sys.path`, and programs that tests start take it over."""
    path = sys.path[:]
    yield
    sys.path[:] = path


@pytest.fixture(autouse=True)
def temporary_directory(tmp_path_factory, monkeypatch):
    """A directory for temporary files that is this test's alone, and its children's."""
    own = tmp_path_factory.mktemp("t")  # short: paths of sockets may not be long
    monkeypatch.setenv("TMPDIR", str(own))
    monkeypatch.setattr(tempfile, "tempdir", str(own))
    return own
