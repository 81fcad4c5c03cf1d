"""Errors that a user can cause, and can mend.

Each carries one message: what was found, what is allowed, what to do next. The command line prints
that message without a traceback and ends with the error's exit code.
"""


class RemudaError(Exception):
    """The base of every error that a user can mend."""

    exit_code = 1


class ConfigError(RemudaError):
    """A configuration key, value or file that cannot be used."""

    exit_code = 2


class UnknownGameError(ConfigError):
    """A game that is not registered."""


class MissingCodeError(ConfigError):
    """Code of a script or a notebook that is not there any more, or cannot be read here."""


class UsageError(RemudaError, ValueError):
    """An argument that a function of the front door cannot use."""


class ContractError(RemudaError):
    """Code of somebody's that breaks its contract: an environment, a network or an algorithm."""


class CommandError(ContractError):
    """A command of a user's director that cannot be carried out; a restart would meet it again."""


class UserCodeError(RemudaError):
    """An exception that code of the user's raised, a game above all; it says where."""


class UnguardedScriptError(RemudaError):
    """A script that calls `remuda.train` as soon as it is read, which children do too."""

    def __init__(
        self, script: str, does: str = "trains", instead: str = 'schedule="sequential"'
    ) -> None:
        who = "process of a run" if does == "trains" else "other process"
        super().__init__(
            f"{script} {does} as soon as it is read, and every {who} reads it again: "
            f'put what it does under `if __name__ == "__main__":`, or take {instead}'
        )


class RunDirectoryError(RemudaError):
    """A run directory that is missing, full, in use or cannot be written."""


class CheckpointError(RemudaError):
    """A checkpoint that is missing, damaged, or made for another run."""


class CallbackError(RemudaError):
    """A callback of the user's that failed, which ended its run in order."""


class RoleDiedError(RemudaError):
    """An actor or a learner that died more often than the restart budget allows."""


class CannotStartError(RoleDiedError):
    """A role's process that the system did not let be started: no memory, or no permission."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what}; --schedule sequential needs no further process, and --run.fallback true "
            "takes it by itself where need be"
        )
        self.what = what
        """What was refused, and why."""


class NodeLostError(RemudaError):
    """A node of a cluster that is gone, or that was given up."""
