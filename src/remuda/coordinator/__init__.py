"""The coordinator: starts and supervises the processes of a run, and writes its files."""
