"""Environment copies in several processes."""
