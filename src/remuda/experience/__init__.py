"""Steps on their way from the actor to the learners."""
