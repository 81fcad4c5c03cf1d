"""What trained policies amount to: exact values of small games."""
