"""Publication of weights from learners to actors."""
