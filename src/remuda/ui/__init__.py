"""What a user sees: the command line, the live view, the report."""
