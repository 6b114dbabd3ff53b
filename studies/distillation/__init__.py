"""Distillation of language models into exact models of sequences."""
