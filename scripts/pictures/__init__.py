"""The pictures of the documentation: one module for each, whose `draw` returns the picture."""
