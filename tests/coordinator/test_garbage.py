"""What garbage collections pass over while a run goes on, and what is left of it afterwards."""

import gc
import weakref

import pytest

from remuda.coordinator.coordinator import ITS_OWN, gc_frozen

pytestmark = pytest.mark.usefixtures("nothing_is_frozen")


class Loop:
    """Garbage that only a collection can find, once nobody names it."""

    def __init__(self):
        self.itself = self


@pytest.fixture
def frozen_by_others():
    assert gc.get_freeze_count() <= ITS_OWN
    gc.freeze()
    yield gc.get_freeze_count()
    gc.unfreeze()


@pytest.fixture(autouse=True)
def no_collection_of_its_own():
    gc.disable()
    yield
    gc.enable()


def run():
    with gc_frozen():
        assert gc.get_freeze_count() > 1000


def test_what_an_earlier_run_left_is_not_kept_by_the_next():
    left = weakref.ref(Loop())
    run()
    assert left() is None
    assert gc.get_freeze_count() == 0


def test_what_an_interpreter_lays_aside_itself_is_nobody_s_choice(monkeypatch):
    """Red before: on Python 3.12, which does so, all that a run had opened stayed open."""
    real = gc.get_freeze_count
    monkeypatch.setattr(gc, "get_freeze_count", lambda: real() + 375)
    run()
    assert real() == 0


def test_nor_where_others_had_objects_passed_over(frozen_by_others):
    """Each run kept what the one before had left, for ever."""
    for _ in range(3):
        left = weakref.ref(Loop())
        run()
        assert left() is None
    assert gc.get_freeze_count() > 0.9 * frozen_by_others, "it stays so, as they chose"


@pytest.mark.slow
def test_nor_what_was_in_use_when_a_run_began_and_is_not_any_more(frozen_by_others):
    """As the result of the one before is, until it is replaced."""
    result = None
    for _ in range(3):
        before = weakref.ref(result) if result is not None else lambda: None
        result = Loop()
        run()
        assert before() is None
