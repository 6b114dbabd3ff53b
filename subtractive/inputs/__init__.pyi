from .base import InputFamily as InputFamily
from .base import Window as Window
from .multivariate import MultivariateFamily as MultivariateFamily
from .univariate import UnivariateFamily as UnivariateFamily
