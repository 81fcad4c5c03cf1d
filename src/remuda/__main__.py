"""`python -m remuda` is the command `remuda`."""

from remuda.ui.cli import main

if __name__ == "__main__":
    main()
