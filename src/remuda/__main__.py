"""The program `remuda`, also as `python -m remuda`."""

import sys

from remuda.ui.interrupts import end_at_once


def main() -> None:
    """Run the command line and end the process with its exit code."""
    end_at_once()
    if sys.argv[1:2] == ["train"] and not {"-h", "--help", "sequential"} & set(sys.argv):
        from remuda.forkserver import client

        client.begin()  # it imports beside this process, from the first moment on
    from remuda.ui import cli

    cli.main()


if __name__ == "__main__":
    main()
