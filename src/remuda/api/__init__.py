"""The public API: all that `import remuda` provides."""
