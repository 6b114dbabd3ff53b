"""The kinds of models that studies compare, by the paper's names."""

from __future__ import annotations

MPC, MPC2, NPC2 = "MPC", "MPC²", "NPC²"
SQUARES, COMPLEX = "Σ squares", "complex²"

# How experiments of the paper are run: as its appendix says, or by our own recipes.
PAPER, OURS = "paper", "ours"
