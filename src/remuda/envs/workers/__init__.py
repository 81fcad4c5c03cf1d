"""Environment copies that several processes step."""
