"""Experiments as grids of runs: records, executors, and pages of results."""
