"""What is compiled is told, and what was compiled before is not."""

import numba
import numpy as np
from numba.core import event

from remuda.runtime.control import STARTING, Control
from remuda.system import compiling
from remuda.system.compiling import CompileListener, Progress, reporting_compiling
from remuda.system.memory.waiting import Wakeup


def test_what_this_process_compiles_is_told():
    @numba.njit
    def add(a, b):
        return a + b

    told = []
    with reporting_compiling(told.append):
        add(1, 2)
        assert told == ["compiling, once for this installation"]
        add(3, 4)
    add(1.0, 2.0)
    assert len(told) == 1


def test_what_tells_may_have_to_be_compiled_itself():
    """Red before: it was told of that in turn, and so on, until the process died of it."""

    @numba.njit
    def note(array, value):
        array[0] = value

    @numba.njit
    def add(a, b):
        return a + b

    now, told = np.zeros(1, np.int64), []

    def tell(compiles):
        note(now, int(compiles))
        told.append(compiles)

    with event.install_listener("numba:compile", CompileListener(tell)):
        assert add(1, 2) == 3
    assert told == [True, False]
    assert now[0] == 0


def test_progress_is_told_now_and_then(monkeypatch):
    now, told = [100.0], []
    monkeypatch.setattr(compiling.time, "monotonic", lambda: now[0])
    progress = Progress(told.append)
    progress.see(0)
    for count in (1, 5, 9):
        progress.see(count)
        now[0] += 3.0
    assert told == [
        "compiling, once for this installation",
        "compiling, once for this installation, 9 functions so far",
    ]


def test_a_role_that_compiles_says_so_in_its_words():
    control = Control((Wakeup(), Wakeup()))
    listener = CompileListener(lambda compiles: control.tell_compiling(1, compiles))
    listener.on_start(None)
    listener.on_start(None)  # another that the first one calls
    listener.on_end(None)
    assert control.compiling(1)
    assert not control.compiling(0)
    listener.on_end(None)
    assert (control.compiling(1), control.compiled(1)) == (False, 2)
    listener.on_start(None)
    control.reset(1)  # its process died meanwhile
    assert not control.compiling(1)
    assert control.state(1) == STARTING
