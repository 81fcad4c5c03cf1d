"""Neural networks that run K policies at once."""
