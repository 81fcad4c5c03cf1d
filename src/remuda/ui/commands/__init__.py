"""The commands: their options, and what each of them does."""
