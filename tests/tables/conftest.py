"""What every test of tables finds: fits that end sooner."""

import pytest

from subtractive.tables import checks


@pytest.fixture(scope="module", autouse=True)
def few_questions_after_a_fit():
    """Let a fit be checked by fewer questions: of small models they take longest."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checks, "AFTER_FIT", 20)
        yield
