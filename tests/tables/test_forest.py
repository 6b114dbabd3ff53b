"""Messages up and down stacked trees give the curves that the densities themselves give."""

import math

import numpy as np
import pytest
import torch

import subtractive as sub
from subtractive.explorer.curves import Curve, Curves
from subtractive.inference.evidence import Evidence
from subtractive.inputs.test_functions import DensityAt
from subtractive.tables.box_points import Draws
from subtractive.tables.expectations import weigh_heights
from subtractive.tables.forest import Forest, _known, split_trees
from subtractive.tables.joint_boxes import box_weight

FAMILIES = [sub.Gaussian(), sub.Gaussian(), sub.Categorical(3), sub.Gaussian()]
POINTS = {v: np.linspace(-3.0, 3.0, 25) for v in (0, 1, 3)} | {2: np.arange(3.0)}
TREE = sub.RegionGraph.from_nested(((0, 1), (2, 3)))


def monotonic(graph, num_units, seed):
    settings = {"num_units": num_units, "weights": sub.positive_weights, "dtype": torch.float64}
    return sub.MonotonicCircuit(sub.Circuit(graph, FAMILIES, seed=seed, **settings))


@pytest.fixture(scope="module")
def density():
    """Three members over one tree, one over another and one without any hidden unit."""
    members = [monotonic(TREE, 4, seed) for seed in range(3)]
    members += [monotonic(sub.linear_tree(4), 3, 3), monotonic(sub.flat(4), 1, 4)]
    return sub.Mixture(members, weights=[0.3, 0.1, 0.2, 0.3, 0.1])


def evidence(num_rows, observed=(), lower=(), upper=(), states=()):
    """Boxes: numbers by variable, the same in all rows or one for each."""

    def row(given, start):
        table = torch.full((num_rows, 4), start, dtype=torch.float64)
        for variable, numbers in dict(given).items():
            table[:, variable] = torch.as_tensor(numbers, dtype=torch.float64)
        return table

    x = row(observed, 0.0)
    mask = torch.zeros(num_rows, 4, dtype=torch.bool)
    mask[:, list(dict(observed))] = True
    bounds = row(lower, -math.inf), row(upper, math.inf)
    return Evidence(x, mask, *bounds, states={v: torch.tensor(s) for v, s in dict(states).items()})


GIVEN = {
    "nothing": evidence(1),
    "a number": evidence(1, observed={0: 0.7}),
    "a state": evidence(1, observed={2: 1.0}),
    "an interval": evidence(1, lower={1: -0.5}, upper={1: 0.4}),
    "a half-line": evidence(1, lower={3: 0.4}),
    "some states": evidence(1, states={2: [True, False, True]}),
    "several": evidence(1, observed={0: -1.0}, upper={1: 0.3}, states={2: [False, True, True]}),
    "two boxes": evidence(2, lower={1: [-1.0, 0.5]}, upper={1: [-0.5, 2.0]}),
    "far away": evidence(1, lower={0: 20.0}, observed={3: 30.0}),
}


@pytest.mark.parametrize("given", GIVEN.values(), ids=GIVEN)
def test_curves_and_weights_are_those_of_the_density(density, given):
    forest = Forest.of(density, POINTS)
    assert sorted(len(stack.log_shares) for stack in forest.trees) == [1, 1, 3]
    asked = {v: codes for v, codes in POINTS.items() if not bool(given.observed[:, v].any())}
    log_weight, heights = forest.weigh_heights(given, asked.keys())
    expected_weight, expected = weigh_heights(density, given, asked)
    np.testing.assert_allclose(log_weight, expected_weight, rtol=1e-12, atol=1e-12)
    assert heights.keys() == expected.keys()
    for variable, curve in expected.items():
        np.testing.assert_allclose(heights[variable], curve, rtol=1e-9, atol=1e-14)


def test_a_single_tree_needs_no_mixture():
    single = monotonic(TREE, 4, 0)
    _, heights = Forest.of(single, POINTS).weigh_heights(GIVEN["a half-line"], [1])
    _, expected = weigh_heights(single, GIVEN["a half-line"], {1: POINTS[1]})
    np.testing.assert_allclose(heights[1], expected[1], rtol=1e-9, atol=1e-14)


def test_what_no_member_thinks_possible_has_no_weight(density):
    impossible = evidence(1, states={2: [False, False, False]})
    log_weight, heights = Forest.of(density, POINTS).weigh_heights(impossible, [0])
    assert log_weight == -math.inf
    assert not heights[0].any()


def test_members_that_exclude_the_evidence_are_left_out():
    members = [monotonic(TREE, 2, seed) for seed in range(2)]
    layer = next(one for one in members[0].circuit.input_layers if one.family.num_states)
    with torch.no_grad():
        layer.logits[..., 1] = -math.inf
    density, given = sub.Mixture(members), evidence(1, observed={2: 1.0})
    forest = Forest.of(density, POINTS)
    _, heights = forest.weigh_heights(given, [0])
    _, expected = weigh_heights(density, given, {0: POINTS[0]})
    np.testing.assert_allclose(heights[0], expected[0], rtol=1e-9, atol=1e-14)
    shares = forest.unit_shares(given)[0].shares[0]
    np.testing.assert_allclose(shares[:2], 0.0, rtol=0, atol=0)
    np.testing.assert_allclose(shares.sum(), 1.0, rtol=1e-12, atol=0)


def test_squares_are_not_prepared():
    circuit = sub.Circuit(sub.linear_tree(2), sub.Gaussian(), num_units=2, seed=0)
    squared = sub.SquaredCircuit(circuit)
    assert Forest.of(squared, {}) is None
    assert Forest.of(sub.Mixture([squared]), {}) is None


@pytest.mark.parametrize("given", ["nothing", "several", "two boxes", "an interval"])
@pytest.mark.parametrize("pair", [(1, 3), (3, 2)])
def test_joint_densities_are_those_of_the_density(density, given, pair):
    boxes, codes = GIVEN[given], tuple(POINTS[v] for v in pair)
    grid = np.stack([side.ravel() for side in np.meshgrid(*codes, indexing="ij")])
    expected = np.zeros(grid.shape[1])
    for box in range(len(boxes)):
        rows = boxes.rows(torch.full((grid.shape[1],), box))
        inside = np.ones(grid.shape[1], dtype=bool)
        for variable, values in zip(pair, grid, strict=True):
            rows.x[:, variable], rows.observed[:, variable] = torch.from_numpy(values), True
            low, high = float(boxes.lower[box, variable]), float(boxes.upper[box, variable])
            inside &= (values > low) & (values <= high)
            if variable in boxes.states:
                inside &= boxes.states[variable].numpy()[values.astype(int)]
        with torch.no_grad():
            log_whole = density.log_weight(boxes).logsumexp(0)
            expected += inside * (density.log_weight(rows) - log_whole).exp().numpy()
    heights = Forest.of(density).pair_heights(boxes, pair, codes)
    np.testing.assert_allclose(heights.ravel(), expected, rtol=1e-9, atol=1e-14)


def test_shares_of_units_give_the_marginals(density):
    given = evidence(1, observed={0: -1.0}, upper={1: 0.3})
    shares = Forest.of(density).unit_shares(given)
    assert set(shares) == {1, 2, 3}
    _, expected = weigh_heights(density, given, {v: POINTS[v] for v in (2, 3)})
    for variable, curve in expected.items():
        family, tensors, numbers = shares[variable]
        question = DensityAt(torch.from_numpy(POINTS[variable]))
        here = given.x[:, [variable]]
        (found,) = family.expectations_units(tensors, numbers, here, [False], [question])
        np.testing.assert_allclose(found[0].detach(), curve, rtol=1e-9, atol=1e-14)


@pytest.fixture(scope="module")
def with_covariances():
    """Trees, and a member whose numbers share full covariances."""
    random = torch.Generator().manual_seed(0)
    rows = torch.randn(400, 4, generator=random, dtype=torch.float64).cumsum(1) / 2
    rows[:, 2] = torch.randint(3, (400,), generator=random)
    group = sub.learning.covariance_group(rows, FAMILIES, [0, 1, 3], 3)
    trees = [monotonic(TREE, 4, 0), monotonic(sub.linear_tree(4), 3, 1)]
    return sub.Mixture([trees[0], group, trees[1]], weights=[0.2, 0.5, 0.3])


def prepared(density):
    parts = split_trees(density)
    curves = {v: Curve(str(v), c, np.ones(len(c)), c > -9) for v, c in POINTS.items()}
    trees = Forest.of(parts.trees, POINTS)
    return Curves(curves, trees, Draws(parts.rest), parts.log_share)


def test_only_mixtures_of_trees_and_others_are_split(density, with_covariances):
    assert split_trees(density) is None
    assert split_trees(with_covariances.members[1]) is None
    parts = split_trees(with_covariances)
    assert [len(parts.trees.members), len(parts.rest.members)] == [2, 1]
    np.testing.assert_allclose(parts.log_share, math.log(0.5), rtol=1e-12, atol=0)


@pytest.mark.parametrize("name", ["nothing", "a number", "an interval", "several", "two boxes"])
def test_trees_and_other_members_together_are_the_whole(with_covariances, name):
    given = GIVEN[name]
    asked = {v: codes for v, codes in POINTS.items() if v not in _known(given)}
    log_weight, heights = prepared(with_covariances)._weigh_heights(given, asked)
    expected_weight, expected = weigh_heights(with_covariances, given, asked)
    # The whole integrates intervals over a grid, also those of trees.
    np.testing.assert_allclose(log_weight, expected_weight, rtol=0, atol=1e-5)
    for variable in asked:
        np.testing.assert_allclose(heights[variable], expected[variable], rtol=0, atol=1e-5)


def test_trees_that_hardly_count_are_left_out_of_pictures_but_not_of_weights(with_covariances):
    rare = sub.Mixture(list(with_covariances.members), weights=[0.005, 0.99, 0.005])
    log_weight, heights = prepared(rare)._weigh_heights(GIVEN["an interval"], {0: POINTS[0]})
    expected_weight, expected = weigh_heights(rare, GIVEN["an interval"], {0: POINTS[0]})
    np.testing.assert_allclose(log_weight, expected_weight, rtol=0, atol=1e-5)
    np.testing.assert_allclose(heights[0], expected[0], rtol=0, atol=0.02 * expected[0].max())
    assert not np.allclose(heights[0], expected[0], rtol=0, atol=1e-6)


def test_samples_are_kept_while_an_end_is_dragged_and_not_beyond(with_covariances):
    both = {"lower": {0: -1.0, 1: -1.0}, "upper": {0: 1.0, 1: 1.0}}
    boxes = [
        evidence(1, lower=both["lower"] | {3: -2.0}, upper=both["upper"] | {3: end})
        for end in (0.5, 1.0)
    ]
    curves = prepared(with_covariances)
    found = [curves._weigh_heights(box, {2: POINTS[2]}) for box in boxes]
    kept = curves.rest._last[1]
    for (log_weight, heights), box in zip(found, boxes, strict=True):
        weight = box_weight(with_covariances, box)
        assert abs(math.exp(log_weight) - math.exp(weight.log_weight)) < 2 * weight.error
        _, expected = weigh_heights(with_covariances, box, {2: POINTS[2]})
        # Means of 150 and of 500 samples: six standard errors of a share of one half.
        np.testing.assert_allclose(heights[2], expected[2], rtol=0, atol=0.3)
    curves._weigh_heights(boxes[0], {2: POINTS[2]})
    assert curves.rest._last[1] is kept
    state = evidence(1, {2: 1.0}, lower=both["lower"] | {3: -2.0}, upper=both["upper"] | {3: 1.0})
    curves.rest.inside(state, [0, 1, 3])
    assert curves.rest._last[1] is not kept
