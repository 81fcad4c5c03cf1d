"""A game that breaks, dawdles or is interrupted once training is over."""

import os
import signal
import sys
import time

import numpy as np

from support import Tape


def called_from(module):
    """Return whether a function of `module` is among the callers."""
    frame = sys._getframe()
    while frame is not None and frame.f_globals["__name__"] != module:
        frame = frame.f_back
    return frame is not None


class Faulty(Tape):
    """Plays as `Tape` does in training; `fault` comes in greedy play, or in its pictures."""

    def __init__(self, num_envs=1, fault="", seconds=0.05):
        super().__init__(num_envs)
        self._fault, self._seconds, self._turns = fault, seconds, 0
        self._evaluated = called_from("remuda.evaluation.evaluate")

    def end_turn(self):
        self._turns += 1
        if self._evaluated and self._fault == "raise" and self._turns == 4:
            raise RuntimeError("the game broke")
        if self._evaluated and self._fault == "interrupt" and self._turns == 5:
            os.kill(os.getpid(), signal.SIGINT)
        if self._evaluated and self._fault == "slow":
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


class Duel(Tape):
    """One agent wins what the other loses; `fault` comes when checkpoints play each other."""

    skipped = 0.0
    """Seconds by which the clock has gone on in slow turns."""

    def __init__(self, num_envs=1, fault=""):
        super().__init__(num_envs)
        self._fault, self._turns = "", 0
        if called_from("remuda.coordinator.best_checkpoint"):
            self._fault = fault

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
