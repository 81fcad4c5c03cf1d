"""The user interface: command line, live view, reports, pages and pictures."""
