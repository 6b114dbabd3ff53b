"""Exact queries about sequences of tokens, and generation guided by them."""
