"""Choose the policies of each match."""
