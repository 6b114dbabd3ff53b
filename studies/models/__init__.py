"""Models that several studies share, their training and evaluation."""
