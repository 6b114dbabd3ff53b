"""Records of runs in git, and the tables, figures and numbers of pages that follow from them."""
