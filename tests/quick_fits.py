"""Estimators that train for few epochs, to see that code which uses them runs."""

import subtractive as sub


def train_briefly(monkeypatch, max_epochs):
    """Let every ``SubtractiveMixture`` train for so many epochs at most."""
    fit = sub.SubtractiveMixture.fit

    def brief(model, *args, **options):
        model.max_epochs = min(model.max_epochs, max_epochs)
        return fit(model, *args, **options)

    monkeypatch.setattr(sub.SubtractiveMixture, "fit", brief)
