"""Where the roles live: in this process, or each in one of its own."""
