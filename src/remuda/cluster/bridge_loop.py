"""How a bridge works inside its process: until it is told to finish, which is after all roles."""

from __future__ import annotations

from remuda.runtime.role_loop import BEAT, RoleContext
from remuda.types import Worker


class BridgeLoop:
    """Rounds until bridges are to finish."""

    def run(self, worker: Worker, context: RoleContext) -> None:
        """Work until closed; of a checkpoint it has no part."""
        control = context.control
        while not control.closed:
            control.beat(context.index)
            if context.save_due():
                context.save(worker)
            worker.work()
            worker.wait(BEAT, lambda: False)
