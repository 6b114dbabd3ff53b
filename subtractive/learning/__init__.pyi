from .distributed import LostProcessError as LostProcessError
from .expectation_maximisation import fit_gaussian_mixture as fit_gaussian_mixture
from .psd import fit_psd_model as fit_psd_model
from .psd import likelihood_gap as likelihood_gap
from .relative_adam import relative_adam as relative_adam
from .semi_tied_mixture import semi_tied_mixture as semi_tied_mixture
