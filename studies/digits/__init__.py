"""Structures and kinds of squares on small images."""
