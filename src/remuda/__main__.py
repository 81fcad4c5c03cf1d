"""The program `remuda`, also as `python -m remuda`."""

import signal
import sys
from contextlib import suppress

if __name__ == "__main__":  # until `end_at_once`, Ctrl-C must not show a traceback
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from remuda.system import output
from remuda.ui.cli.program import end_at_once, open_standard_streams


def main() -> None:
    """Run the command line and end the process with its exit code."""
    open_standard_streams()
    output.install()
    end_at_once()
    from remuda.system.processes.server import is_the_program
    from remuda.ui.cli import main
    from remuda.ui.cli.program import leave, output_is_gone

    is_the_program()
    try:
        main.main()
    except SystemExit as ending:
        leave(ending.code)
    except output.OutputError as error:
        with suppress(OSError, output.OutputError):
            print(f"remuda: {error}", file=sys.stderr)
        leave(1)
    except OSError as error:
        if error.errno not in output.GONE or not output_is_gone():
            raise
        leave(1)  # the reader of the output has closed it, as in `remuda train --help | head`


if __name__ == "__main__":
    main()
