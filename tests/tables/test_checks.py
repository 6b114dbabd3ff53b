"""The estimators keep scikit-learn's contract."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

import subtractive as sub

# Nothing is expected to fail. One check skips itself: that of array-API input, which is off
# unless SCIPY_ARRAY_API is set before scipy is imported.
QUICK = sub.SubtractiveMixture(2, max_epochs=1, structure="binary")
ESTIMATORS = [
    QUICK,
    sub.SubtractiveClassifier(QUICK),
    sub.SubtractiveImputer(QUICK),
    sub.SubtractiveOutlierDetector(QUICK),
]
# The same class with other models inside: the contract hardly depends on them.
OTHERS = [
    sub.SubtractiveMixture(4, max_epochs=3),
    sub.SubtractiveClassifier(sub.SubtractiveMixture(4, max_epochs=3)),
    sub.SubtractiveMixture(3, max_epochs=2, structure="linear", n_structures=2),
    sub.SubtractiveMixture(3, max_epochs=2, kind="monotonic", structure="flat"),
]


@pytest.mark.filterwarnings("ignore::subtractive.DataWarning")
@parametrize_with_checks(ESTIMATORS)
def test_scikit_learn_finds_no_fault(estimator, check):
    check(estimator)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::subtractive.DataWarning")
@parametrize_with_checks(OTHERS)
def test_scikit_learn_finds_no_fault_with_other_models(estimator, check):
    check(estimator)
