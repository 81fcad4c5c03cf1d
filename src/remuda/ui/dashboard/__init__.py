"""`remuda dashboard`: live and finished runs in a browser."""
