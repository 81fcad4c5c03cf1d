"""A game that breaks, dawdles or is interrupted once training is over."""

import os
import signal
import time

import numpy as np

from support import Tape

EVALUATED = 7
"""Copies by which it sees that it is evaluated: as many as the tests ask for."""


class Faulty(Tape):
    """Plays as `Tape` does in training; `fault` comes in greedy play, or in its pictures."""

    def __init__(self, num_envs=1, fault="", seconds=0.05):
        super().__init__(num_envs)
        self._fault, self._seconds, self._turns = fault, seconds, 0
        self._evaluated = num_envs == EVALUATED

    def end_turn(self):
        self._turns += 1
        if self._evaluated and self._fault == "raise" and self._turns == 4:
            raise RuntimeError("the game broke")
        if self._evaluated and self._fault == "interrupt" and self._turns == 5:
            os.kill(os.getpid(), signal.SIGINT)
        if self._fault == "slow" and self.num_envs != 2:  # not in training
            time.sleep(self._seconds * self.num_envs)
        return super().end_turn()

    def render(self):
        if self._fault == "render":
            raise OSError("no display")
        if self._fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self._fault == "hang":
            time.sleep(600.0)
        if self._fault == "stop":
            self._fault = ""
            os.kill(os.getpid(), signal.SIGSTOP)
        return np.zeros((8, 8, 3), np.uint8)


JUDGED = 5
"""Copies by which `Duel` sees that checkpoints play each other: as many as the tests ask for."""


class Duel(Tape):
    """One agent wins what the other loses; `fault` comes when checkpoints play each other."""

    skipped = 0.0
    """Seconds by which the clock has gone on in slow turns."""

    def __init__(self, num_envs=1, fault=""):
        super().__init__(num_envs)
        self._fault, self._turns = fault if num_envs == JUDGED else "", 0

    def end_turn(self):
        self._turns += 1
        if self._fault == "raise" and self._turns == 4:
            raise RuntimeError("the game broke")
        if self._fault.startswith("SIG") and self._turns == 2:
            os.kill(os.getpid(), getattr(signal, self._fault))
        if self._fault == "slow":
            Duel.skipped += 150.0
        result = super().end_turn()
        self._rewards[:, 0] -= self._rewards[:, 1]
        self._rewards[:, 1] = -self._rewards[:, 0]
        return result
