"""The role that watches: it starts the others, counts, shows, saves and stops."""
