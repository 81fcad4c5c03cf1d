"""Tables, keys and live views in the terminal."""
