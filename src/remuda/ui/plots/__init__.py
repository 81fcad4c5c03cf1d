"""The pictures of reports and analyses, and recordings of episodes."""
