"""Subtractive mixture models: densities that add and subtract, with exact inference.

Names are imported when they are first used, so that the command line starts at once.
``__init__.pyi`` says where they come from, here and in the folders.
"""

import lazy_loader

__version__ = "0.1.0.dev0"
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
