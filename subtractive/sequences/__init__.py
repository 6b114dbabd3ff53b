"""Chains of tokens: required words, gaps, guided generation."""
