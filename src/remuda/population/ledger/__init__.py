"""The record of all matches, and ratings."""
