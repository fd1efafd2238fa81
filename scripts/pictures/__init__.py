"""The pictures of the documentation, each a module whose `draw` returns it."""
