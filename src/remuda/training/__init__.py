"""`remuda.train` from start to finish, including resume and warm start; read run.py first."""
