"""Errors that a user can cause and fix.

A message states what was found, what is allowed and what to do next. The command line prints it
without a traceback and exits with the error's `exit_code`.
"""


class RemudaError(Exception):
    """The base of every error that a user can fix."""

    exit_code = 1

    def __reduce__(self) -> tuple[object, ...]:
        """Unpickle without `__init__`, which in some classes builds the message."""
        return _rebuilt, (type(self), *self.args), self.__dict__


def _rebuilt(kind: type[RemudaError], *args: object) -> RemudaError:
    return kind.__new__(kind, *args)


class ConfigError(RemudaError):
    """A configuration key, value or file that cannot be used."""

    exit_code = 2


class UnknownGameError(ConfigError):
    """A game that is not registered."""


class MissingCodeError(ConfigError):
    """A class or function of a script or notebook that this process cannot load."""


class ForeignCodeError(RemudaError):
    """Code of a run of another person or machine, which the user did not allow to be executed."""


class UsageError(RemudaError, ValueError):
    """An argument that a function of the public API cannot use."""


class ContractError(RemudaError):
    """A user's environment, network or algorithm that breaks its contract."""


class CommandError(ContractError):
    """A result of a user's director or matchmaker that no restart can make usable."""


class UserCodeError(RemudaError):
    """An exception raised by the user's code, such as a game; the message names the line."""


class UnguardedScriptError(RemudaError):
    """A script without a `__main__` guard, which every new process would run again."""

    def __init__(
        self, script: str, does: str = "trains", instead: str = 'schedule="sequential"'
    ) -> None:
        child = "process of a run" if does == "trains" else "other process"
        super().__init__(
            f"{script} {does} without a guard, and every {child} runs the script again: "
            f'put its code under `if __name__ == "__main__":`, or set {instead}'
        )


class RunDirectoryError(RemudaError):
    """A run directory that is missing, full, in use or cannot be written."""


class CheckpointError(RemudaError):
    """A checkpoint that is missing, damaged, or made for another run."""


class CallbackError(RemudaError):
    """A user's callback that failed, which ended its run cleanly."""


class RoleDiedError(RemudaError):
    """An actor or a learner that died more often than `supervision.restarts` allows."""


class CannotStartError(RoleDiedError):
    """A role's process that the system refused to start: no memory, or no permission."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what}; --schedule sequential starts no other process, and --run.fallback true "
            "switches to it automatically"
        )
        self.what = what
        """The message without the advice."""


class NodeLostError(RemudaError):
    """A node of a cluster that is lost or no longer answers."""
