"""Publishing of weights from the learners to the actors."""
