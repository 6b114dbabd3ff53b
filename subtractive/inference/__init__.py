"""What can be asked of circuits: partition functions, marginals, samples, expectations."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
