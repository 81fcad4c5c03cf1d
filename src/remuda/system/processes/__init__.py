"""Child processes: forked from a server that has loaded the libraries, or spawned.

The fork server (`server.py`) has loaded torch and Numba and does nothing else: it never plays,
trains or touches a GPU. So a fork of it takes milliseconds and is as clean as a fresh process. The
program `remuda` loads the libraries itself and forks the server (`load_and_begin`), so they are
loaded once. Any other process may have threads or use a GPU, so its server is a fresh process. If
the server dies, it is replaced and its children continue. Without a server (on macOS), children are
spawned.

`multiprocessing`'s fork server does not suffice:

- `start` waits for the server and for the child, so a stopped server would stop the coordinator,
  and with it all supervision.
- It sends a child at most 256 descriptors, and a run with hundreds of policies has more.
- Children have the environment, limits and output of the time when the server started, and outlive
  a killed owner. If the server is killed, their exit codes are lost, and signals may reach another
  process with the same id.
"""
