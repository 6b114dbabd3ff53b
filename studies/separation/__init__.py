"""The paper's proof of an exponential separation, made runnable."""
