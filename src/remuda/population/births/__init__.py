"""New policies: inheritance and lifecycle."""
