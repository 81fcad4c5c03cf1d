"""Who exists, who plays whom, and what came of it."""
