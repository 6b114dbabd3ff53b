import itertools

import pytest
from laws import LAWS
from registry import KINDS, covering, every_kind


@every_kind(("graph", "family", "layer", "weights", "outputs"), KINDS)
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_laws_hold(law, graph, family, layer, weights, outputs):
    law((graph, family, layer, weights, outputs))


def test_a_covering_has_all_pairs_of_choices():
    few = covering(KINDS)
    assert len(few) < len(KINDS) / 10
    for one, other in itertools.combinations(range(5), 2):
        every = {(kind[one], kind[other]) for kind in KINDS}
        assert {(kind[one], kind[other]) for kind in few} == every
