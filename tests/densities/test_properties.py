"""Laws for random models: any tree, any families side by side, any weights, any evidence."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import gauss_legendre, grid
from registry import LAYERS, WEIGHTS

import subtractive as sub
from subtractive.inference import marginal as marginal_module

MOST_POINTS = 6000


def spans(*knots):
    """Gauss's rule between each two knots: exact for the squares of splines."""
    pieces = [gauss_legendre(a, b, 3) for a, b in zip(knots, knots[1:], strict=False)]
    return tuple(np.concatenate(parts) for parts in zip(*pieces, strict=True))


def states(count):
    return np.arange(float(count)), np.ones(count)


# name -> (family, a rule that integrates products of its functions)
COLUMNS = {
    "categorical 2": (sub.Categorical(2), states(2)),
    "categorical 3": (sub.Categorical(3), states(3)),
    "embedding 1": (sub.Embedding(1), states(1)),
    "embedding 2": (sub.Embedding(2), states(2)),
    "embedding 3": (sub.Embedding(3), states(3)),
    "binomial 1": (sub.Binomial(1), states(2)),
    "binomial 2": (sub.Binomial(2), states(3)),
    "spline": (sub.Spline(3, order=1, domain=(1.0, 3.0)), spans(1.0, 2.0, 3.0)),
    "other spline": (sub.Spline(3, order=1, domain=(-2.0, 0.0)), spans(-2.0, -1.0, 0.0)),
    "positive spline": (
        sub.Spline(3, order=2, domain=(0.0, 1.0), non_negative=True),
        spans(0.0, 1.0),
    ),
    "gaussian": (sub.Gaussian(), gauss_legendre(-12.0, 12.0, 72)),
}
NON_NEGATIVE = [name for name, (family, _) in COLUMNS.items() if family.is_non_negative]


@st.composite
def nested(draw, leaves):
    """Random nested tuples over the leaves: partitions of two or three children."""
    if len(leaves) == 1:
        return leaves[0]
    size = len(leaves)
    cuts = draw(st.sets(st.integers(1, size - 1), min_size=1, max_size=min(2, size - 1)))
    ends = [0, *sorted(cuts), size]
    parts = [leaves[a:b] for a, b in zip(ends, ends[1:], strict=False)]
    return tuple([draw(nested(part)) for part in parts])


@st.composite
def models(draw, most_variables=4):
    """(density, column names): squared, additive, or a mixture of two on different trees."""
    kind = draw(st.sampled_from(["squared", "squared", "squared", "additive", "mixture"]))
    names = draw(
        st.lists(
            st.sampled_from(NON_NEGATIVE if kind == "additive" else list(COLUMNS)),
            min_size=1,
            max_size=most_variables,
        ).filter(lambda names: math.prod(len(COLUMNS[n][1][0]) for n in names) <= MOST_POINTS)
    )
    if kind == "mixture":
        members = [sub.SquaredCircuit(draw(circuits(names))) for _ in range(2)]
        return sub.Mixture(members, weights=[draw(st.floats(0, 1)), 1.0]), names
    if kind == "additive":
        return sub.MonotonicCircuit(draw(circuits(names, ["positive"]))), names
    return sub.SquaredCircuit(draw(circuits(names))), names


@st.composite
def circuits(draw, names, weights=tuple(WEIGHTS)):
    order = draw(st.permutations(range(len(names))))
    kind, initialise = WEIGHTS[draw(st.sampled_from(list(weights)))]
    return sub.Circuit(
        sub.RegionGraph.from_nested(draw(nested(order))),
        [COLUMNS[name][0] for name in names],
        num_units=draw(st.integers(1, 3)),
        num_input_units=draw(st.integers(1, 3)),
        num_outputs=draw(st.integers(1, 3)),
        weights=kind,
        initialise=initialise,
        product=LAYERS[draw(st.sampled_from(list(LAYERS)))],
        seed=draw(st.integers(0, 200)),
        dtype=torch.float64,
    )


def rows_of(names, n, seed):
    rng = np.random.default_rng(seed)
    columns = [rng.choice(COLUMNS[name][1][0], size=n) for name in names]
    return torch.from_numpy(np.stack(columns, -1))


@settings(max_examples=50)
@given(models(), st.data())
@torch.no_grad()
def test_probabilities_sum_to_one_and_any_marginal_is_a_sum_of_the_joint(model, data):
    p, names = model
    axes = [COLUMNS[name][1] for name in names]
    x, w = grid(axes)
    joint = (p.log_prob(x).exp() * w).reshape([len(nodes) for nodes, _ in axes])
    torch.testing.assert_close(joint.sum().item(), 1.0, rtol=0, atol=1e-7)
    observed = data.draw(st.lists(st.booleans(), min_size=len(names), max_size=len(names)))
    seen = [v for v in range(len(names)) if observed[v]]
    hidden = [v for v in range(len(names)) if not observed[v]]
    if not seen:
        return
    points, share = grid([axes[v] for v in seen])
    rows = torch.full((len(points), len(names)), torch.nan, dtype=torch.float64)
    rows[:, seen] = points
    expected = (joint.sum(hidden) if hidden else joint).flatten()
    torch.testing.assert_close(p.log_prob(rows).exp() * share, expected, rtol=1e-6, atol=1e-9)


@settings(max_examples=40)
@given(models(), st.data())
@torch.no_grad()
def test_every_conditional_sums_to_one_and_their_product_is_the_joint(model, data):
    p, names = model
    x = rows_of(names, 1, data.draw(st.integers(0, 1000)))
    order = data.draw(st.permutations(range(len(names))))
    total = torch.zeros(1, dtype=torch.float64)
    known = torch.zeros(len(names), dtype=torch.bool)
    for variable in order:
        nodes, weights = map(torch.from_numpy, COLUMNS[names[variable]][1])
        rows = x.repeat(len(nodes) + 1, 1)
        rows[1:, variable] = nodes
        asked = torch.arange(len(names)) == variable
        conditional = p.log_conditional(rows, asked, known)
        mass = (conditional[1:].exp() * weights).sum().item()
        torch.testing.assert_close(mass, 1.0, rtol=0, atol=1e-6)
        total = total + conditional[:1]
        known = known | asked
    torch.testing.assert_close(total, p.log_prob(x), rtol=0, atol=1e-8)


@settings(max_examples=40)
@given(models(most_variables=6), st.data())
@torch.no_grad()
def test_rows_do_not_depend_on_their_company(model, data):
    """One mask per row, whatever the other rows' masks and however many fit in a block."""
    p, names = model
    n = data.draw(st.integers(1, 4))
    x = rows_of(names, n, data.draw(st.integers(0, 1000)))
    flags = data.draw(st.lists(st.booleans(), min_size=n * len(names), max_size=n * len(names)))
    observed = torch.tensor(flags).reshape(n, len(names))
    alone = torch.cat([p.log_marginal(x[k : k + 1], observed[k]) for k in range(n)])
    torch.testing.assert_close(p.log_marginal(x, observed), alone, rtol=0, atol=1e-10)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(marginal_module, "_BLOCK", data.draw(st.integers(1, 400)))
        torch.testing.assert_close(p.log_marginal(x, observed), alone, rtol=0, atol=1e-10)
    nothing = ~observed.any(1)
    torch.testing.assert_close(
        alone[nothing], torch.zeros_like(alone[nothing]), rtol=0, atol=1e-10
    )


@settings(max_examples=50)
@given(models(), st.data())
@torch.no_grad()
def test_restrictions_agree_with_masks(model, data):
    p, names = model
    x = rows_of(names, 3, data.draw(st.integers(0, 1000)))
    keep = data.draw(st.lists(st.sampled_from(range(len(names))), unique=True, min_size=1))
    seen = torch.tensor([v in keep for v in range(len(names))])
    expected = p.log_marginal(x, seen)
    restricted = p.marginal(keep)
    torch.testing.assert_close(restricted.log_prob(x[:, keep]), expected, rtol=0, atol=1e-10)
    if len(keep) == 1:
        return
    fixed = {0: x[0, keep[0]].item()}
    conditioned = restricted.condition(fixed)
    asked = seen.clone()
    asked[keep[0]] = False
    torch.testing.assert_close(
        conditioned.log_prob(x[:1, keep[1:]]),
        p.log_conditional(x[:1], asked, seen & ~asked),
        rtol=0,
        atol=1e-10,
    )


@settings(max_examples=40)
@given(st.data())
@torch.no_grad()
def test_renaming_the_variables_changes_nothing(data):
    names = data.draw(st.lists(st.sampled_from(list(COLUMNS)), min_size=2, max_size=5))
    structure = data.draw(nested(list(range(len(names)))))
    new = data.draw(st.permutations(range(len(names))))  # variable v is called new[v]

    def renamed(node):
        return new[node] if isinstance(node, int) else tuple(renamed(child) for child in node)

    settings = {"num_units": 2, "num_outputs": 2, "initialise": sub.init.normal(), "seed": 3}
    settings |= {"dtype": torch.float64}
    families = [COLUMNS[name][0] for name in names]
    other = [families[new.index(v)] for v in range(len(names))]
    p = sub.SquaredCircuit(
        sub.Circuit(sub.RegionGraph.from_nested(structure), families, **settings)
    )
    q = sub.SquaredCircuit(
        sub.Circuit(sub.RegionGraph.from_nested(renamed(structure)), other, **settings)
    )
    x = rows_of(names, 6, 0)
    x[torch.rand(x.shape, generator=torch.Generator().manual_seed(0)) < 0.3] = torch.nan
    y = torch.empty_like(x)
    y[:, new] = x
    torch.testing.assert_close(q.log_prob(y), p.log_prob(x), rtol=0, atol=1e-10)


MIXED = ["gaussian", "categorical 3", "embedding 2", "spline", "binomial 2"]


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("weights", ["real", "complex"])
@pytest.mark.parametrize(
    "structure", [(0, 1, 2, 3, 4), (((0, 1), 2), (3, 4)), (3, (1, (4, (0, 2))))]
)
@torch.no_grad()
def test_one_model_may_hold_every_type_of_column(structure, weights, layer):
    kind, initialise = WEIGHTS[weights]
    p = sub.SquaredCircuit(
        sub.Circuit(
            sub.RegionGraph.from_nested(structure),
            [COLUMNS[name][0] for name in MIXED],
            num_units=3,
            num_outputs=2,
            weights=kind,
            initialise=initialise,
            product=LAYERS[layer],
            seed=0,
            dtype=torch.float64,
        )
    )
    axes = [COLUMNS[name][1] for name in MIXED]
    x, w = grid(axes)
    joint = (p.log_prob(x).exp() * w).reshape([len(nodes) for nodes, _ in axes])
    torch.testing.assert_close(joint.sum().item(), 1.0, rtol=0, atol=1e-7)
    for seen in ([0], [3], [1, 4], [0, 2, 3], [1, 2, 3, 4]):
        points, share = grid([axes[v] for v in seen])
        rows = torch.full((len(points), 5), torch.nan, dtype=torch.float64)
        rows[:, seen] = points
        expected = joint.sum([v for v in range(5) if v not in seen]).flatten()
        marginal = p.log_prob(rows).exp() * share
        torch.testing.assert_close(marginal, expected, rtol=1e-6, atol=1e-9)
