"""Places for roles to live: this process, or a separate one each."""
