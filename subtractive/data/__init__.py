"""Small data sets: the penguins, and distributions in the plane to draw from."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
