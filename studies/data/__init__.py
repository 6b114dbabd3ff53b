"""Readers of real data sets."""
