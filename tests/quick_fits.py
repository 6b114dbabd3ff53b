"""Estimators that train for few epochs, to see that code which uses them runs."""

import subtractive as sub


def train_briefly(monkeypatch, max_epochs):
    """Let ``SubtractiveMixture``, ``fit`` and ``fit_em`` train for so many epochs at most."""
    for place, name in ((sub, "fit"), (sub.learning, "fit_em")):
        monkeypatch.setattr(place, name, _shortened(getattr(place, name), max_epochs))
    fit = sub.SubtractiveMixture.fit

    def brief(model, *args, **options):
        model.max_epochs = min(model.max_epochs, max_epochs)
        return fit(model, *args, **options)

    monkeypatch.setattr(sub.SubtractiveMixture, "fit", brief)


def _shortened(fit, most):
    def brief(*args, max_epochs=most, **options):
        return fit(*args, max_epochs=min(max_epochs, most), **options)

    return brief
