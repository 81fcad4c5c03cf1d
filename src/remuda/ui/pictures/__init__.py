"""The pictures of an analysis: `gallery` draws all of them, each other module one kind."""
