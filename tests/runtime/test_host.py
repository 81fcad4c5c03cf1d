"""The order in which roles work."""

from remuda.runtime.control import Control
from remuda.runtime.host import RoleContext, run_lockstep_learner
from remuda.system.checkpoint.store import Checkpoints
from remuda.system.memory.waiting import Wakeup


class AlwaysBusy:
    """A learner that finds something to do each time, for whatever reason."""

    def __init__(self, control):
        self.control, self.updates = control, 0

    def work(self):
        self.updates += 1
        if self.updates == 3:
            self.control.stop()
        assert self.updates < 100, "it is at it for ever"
        return True


def test_a_learner_in_lockstep_that_is_never_through_may_be_stopped(tmp_path):
    control = Control((Wakeup(), Wakeup()))
    worker = AlwaysBusy(control)
    control.end_turn(0)
    run_lockstep_learner(worker, RoleContext(1, control, Checkpoints(tmp_path), None))
    assert worker.updates == 3
    assert control.trained(1) == 0, "it is not through with the turn"
