"""New policies: inheritance and lifecycle.

1. The actor clears the experience of an empty slot, writes the newborn's weights, hyperparameters
   and training state into the table, logs the birth with its generation, and orders the birth by a
   counter in shared memory. After a crash in between, the ledger may have two records of the same
   generation; the later record is valid.
2. The learner of the slot finds the order between two updates, loads the weights, discards the old
   policy's experience, publishes the weights, and confirms the version.
3. The actor gives seats to the newborn once it acts with that version.

If a process dies, its successor repeats the step; `tests/population/births/test_vacated_deaths.py`
kills the actor at every line. If the parent's network differs in widths or depth, the actor
converts the weights in step 1 (`evolution/grow.py`), so a learner only sees its own network. With
inherited training state, the actor reads weights and training state as one snapshot, so that they
have the same version.
"""
