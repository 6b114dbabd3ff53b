"""Plots of models and tables with matplotlib; each takes ``ax`` and returns it."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
