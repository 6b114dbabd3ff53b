"""Experiments on real data beyond the paper's."""
