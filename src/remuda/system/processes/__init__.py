"""Child processes: forked from a server that has loaded the libraries, or spawned."""
