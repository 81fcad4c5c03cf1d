"""The pictures of an analysis; `page` combines the pictures of the other modules."""
