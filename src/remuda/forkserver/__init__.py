"""Child processes: forked from a server that has the libraries loaded, or else spawned."""
