"""The pictures of an analysis: `page` draws all of them, each other module some."""
