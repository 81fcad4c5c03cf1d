"""The games, and the one interface that every game has."""
