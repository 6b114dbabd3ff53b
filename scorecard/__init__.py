"""The scorecard: what the library promises, measured. ``python -m scorecard`` runs it."""
