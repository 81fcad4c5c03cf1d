"""The program `remuda`, also as `python -m remuda`."""

from remuda.ui.entering import open_standard_streams
from remuda.ui.interrupts import end_at_once


def main() -> None:
    """Run the command line and end the process with its exit code."""
    open_standard_streams()
    end_at_once()
    from remuda.forkserver.program import is_the_program
    from remuda.ui import cli
    from remuda.ui.leaving import leave

    is_the_program()
    try:
        cli.main()
    except SystemExit as ending:
        leave(ending.code)


if __name__ == "__main__":
    main()
