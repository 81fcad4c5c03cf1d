"""Errors that a user can cause, and can fix.

Each carries one message: what was found, what is allowed, what to do next. The command line prints
that message without a traceback and ends with the error's exit code.
"""


class RemudaError(Exception):
    """The base of every error that a user can fix."""

    exit_code = 1


class ConfigError(RemudaError):
    """A configuration key, value or file that cannot be used."""

    exit_code = 2


class UnknownGameError(ConfigError):
    """A game that is not registered."""


class MissingCodeError(ConfigError):
    """Code of a script or a notebook that is missing, or cannot be read here."""


class UsageError(RemudaError, ValueError):
    """An argument that a function of the public API cannot use."""


class ContractError(RemudaError):
    """A user's environment, network or algorithm that breaks its contract."""


class CommandError(ContractError):
    """A command of a user's director that cannot be carried out; a restart would fail again."""


class UserCodeError(RemudaError):
    """An exception raised by the user's code, such as a game; it names the line."""


class UnguardedScriptError(RemudaError):
    """A script that calls `remuda.train` without a `__main__` guard: children would call it too."""

    def __init__(
        self, script: str, does: str = "trains", instead: str = 'schedule="sequential"'
    ) -> None:
        child = "process of a run" if does == "trains" else "other process"
        super().__init__(
            f"{script} {does} without a guard, and every {child} runs the script again: "
            f'put what it does under `if __name__ == "__main__":`, or take {instead}'
        )


class RunDirectoryError(RemudaError):
    """A run directory that is missing, full, in use or cannot be written."""


class CheckpointError(RemudaError):
    """A checkpoint that is missing, damaged, or made for another run."""


class CallbackError(RemudaError):
    """A user's callback that failed, which ended its run cleanly."""


class RoleDiedError(RemudaError):
    """An actor or a learner that died more often than the restart budget allows."""


class CannotStartError(RoleDiedError):
    """A role's process that the system refused to start: no memory, or no permission."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what}; --schedule sequential needs no further process, and --run.fallback true "
            "switches to it automatically"
        )
        self.what = what
        """The reason of the refusal."""


class NodeLostError(RemudaError):
    """A node of a cluster that is lost or no longer answers."""
