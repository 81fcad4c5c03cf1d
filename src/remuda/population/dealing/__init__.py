"""Deal matches to an actor."""
