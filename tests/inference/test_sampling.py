"""Samples undone exactly: the uniform numbers a sampler was fed, back by conditional CDFs."""

import itertools
import math

import pytest
import torch
from registry import FAMILIES, GRAPHS, LAYERS, build, every_kind, points

import subtractive as sub
from subtractive.inference import marginal, sampling
from subtractive.inference.evidence import Evidence, make_evidence
from subtractive.inference.outside import descend, inside
from subtractive.inference.sampling import sample_square
from subtractive.inputs import quadratic_form_sampling

DOUBLE = torch.float64
NAN = math.nan
# Atoms take a uniform number of their own: their law is tested in tests/inputs/test_atoms.py.
INVERTED = [name for name in FAMILIES if name != "atoms"]


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def below(p, x, known, variable, bound):
    """P(x_variable <= bound | what is known), (n,)."""
    upper = torch.full_like(x, math.inf)
    upper[:, variable] = bound
    return (p.log_weight(Evidence(x, known, None, upper)) - p.log_weight(Evidence(x, known))).exp()


@torch.no_grad()
def check_undone(p, given, seed=5, atol=1e-9):
    """Draw a row for each row of ``given``, then ask which uniform numbers were behind it."""
    x = p.sample(given=given, generator=seeded(seed))
    evidence = make_evidence(given, None, p.families, p.device)
    assert torch.equal(x[evidence.observed], evidence.x[evidence.observed])
    replay = seeded(seed)
    for rows, schedule in marginal.blocks(p.circuit, evidence, marginal.square_leaf):
        part, known = x[rows], evidence.observed[rows].clone()
        for variable in visits(p.circuit, evidence.rows(rows), schedule):
            uniform = torch.rand(len(rows), generator=replay, dtype=DOUBLE)
            free = ~known[:, variable]
            high = below(p, part, known, variable, part[:, variable])
            low = high
            if p.families[variable].num_states is not None:
                low = below(p, part, known, variable, part[:, variable] - 0.5)
            assert (uniform >= low - atol)[free].all()
            assert (uniform <= high + atol)[free].all()
            known[:, variable] = True
        assert known.all()


def visits(circuit, evidence, schedule):
    """The variables in the order in which they are drawn."""
    order = []
    descend(inside(circuit, schedule, evidence), lambda region, _: order.append(region))
    return [min(circuit.graph.regions[region].scope) for region in order]


def nothing(n, d):
    return torch.full((n, d), NAN, dtype=DOUBLE)


@every_kind(
    ("graph", "family", "layer", "weights", "outputs"),
    [
        *itertools.product(GRAPHS, INVERTED, LAYERS, ["real"], [1, 3]),
        *itertools.product(GRAPHS, ["gaussian", "embedding", "spline"], LAYERS, ["complex"], [2]),
        *itertools.product(GRAPHS, ["gaussian", "binomial"], LAYERS, ["positive"], [2]),
    ],
)
def test_samples_are_quantiles_of_the_uniform_numbers(graph, family, layer, weights, outputs):
    circuit = build(graph, family, layer=layer, weights=weights, outputs=outputs)
    check_undone(sub.SquaredCircuit(circuit), nothing(20, 4))


@every_kind(
    ("graph", "family", "layer"), list(itertools.product(GRAPHS, INVERTED, LAYERS)), together=1
)
def test_samples_given_other_things_in_each_row_are_quantiles_too(graph, family, layer):
    weights = "complex" if layer == "hadamard" else "real"
    circuit = build(graph, family, layer=layer, weights=weights, outputs=2)
    rows = points(family, 24, 4, seed=1)
    rows[torch.rand(24, 4, generator=seeded()) < 0.5] = NAN
    check_undone(sub.SquaredCircuit(circuit), rows)


MIXED = [sub.Gaussian(), sub.Embedding(4), sub.Spline(5, domain=(0.0, 2.0)), sub.Binomial(6)]


@every_kind(("graph", "layer"), list(itertools.product(GRAPHS, LAYERS)), together=1)
def test_continuous_and_discrete_variables_may_meet(graph, layer):
    circuit = sub.Circuit(
        GRAPHS[graph](4),
        MIXED,
        num_units=3,
        num_outputs=2,
        product=LAYERS[layer],
        initialise=sub.init.normal(),
        seed=0,
        dtype=DOUBLE,
    )
    given = nothing(40, 4)
    given[10:20, 1] = 2.0
    given[15:30, 2] = 0.7
    check_undone(sub.SquaredCircuit(circuit), given)


def test_inputs_of_another_width_than_the_sums():
    circuit = build("binary", "gaussian", num_input_units=5, num_units=2, outputs=2)
    check_undone(sub.SquaredCircuit(circuit), nothing(30, 4))


@pytest.mark.parametrize("family", INVERTED)
@pytest.mark.parametrize("units", [1, 3])
def test_one_variable(family, units):
    units = 3 if family == "rbf" else units
    circuit = build("flat", family, d=1, num_units=units)
    check_undone(sub.SquaredCircuit(circuit), nothing(200, 1))


@every_kind(
    ("graph", "family"),
    list(itertools.product(GRAPHS, [name for name in INVERTED if name != "rbf"])),
    together=1,
)
def test_one_unit(graph, family):
    check_undone(sub.SquaredCircuit(build(graph, family, num_units=1)), nothing(20, 4))


def narrow(p, log_scale=-6.0):
    with torch.no_grad():
        for layer in p.circuit.input_layers:
            layer.log_scale.fill_(log_scale)
    return p


@pytest.mark.parametrize("graph", GRAPHS)
def test_narrow_gaussians_far_apart(graph):
    p = narrow(sub.SquaredCircuit(build(graph, "gaussian", outputs=2)))
    check_undone(p, nothing(100, 4))
    near = p.sample(100, given={1: p.sample(1, generator=seeded())[0, 1].item()})
    assert p.log_prob(near).isfinite().all()


@pytest.mark.parametrize("distance", [1e-1, 1e-2])
def test_weights_that_cancel_almost_exactly(distance):
    """c = N(x; 0) N(y; 0) - N(x; ε) N(y; ε), whose square has digits for ε² only."""
    circuit = build("flat", "gaussian", d=2, num_units=2)
    with torch.no_grad():
        circuit.sum_layers[0].weights.value.copy_(torch.tensor([[[1.0, -1.0]]]))
        for layer in circuit.input_layers:
            layer.log_scale.zero_()
            layer.mean.copy_(torch.tensor([[0.0, distance]]).expand(2, -1))
    check_undone(sub.SquaredCircuit(circuit), nothing(200, 2), atol=1e-13 / distance**4)


def test_single_precision_models_are_sampled_in_double_precision():
    p = sub.SquaredCircuit(build("binary", "gaussian", outputs=2, dtype=torch.float32))
    drawn = p.sample(50, generator=seeded())
    assert drawn.dtype == DOUBLE
    wide = sub.SquaredCircuit(build("binary", "gaussian", outputs=2, dtype=torch.float32)).double()
    expected = wide.sample(50, generator=seeded())
    torch.testing.assert_close(drawn, expected, rtol=0, atol=1e-4)


def densities():
    squared = sub.SquaredCircuit(build("binary", "gaussian", outputs=2))
    additive = sub.MonotonicCircuit(build("linear", "gaussian", weights="positive"))
    return {
        "squared": squared,
        "discrete": sub.SquaredCircuit(build("linear", "embedding")),
        "monotonic": additive,
        "mixture": sub.Mixture([squared, additive], weights=[0.3, 0.7]),
        "marginal": squared.marginal([2, 0]),
        "conditional": squared.condition({1: 0.3}),
        "mixture of restrictions": sub.Mixture(
            [squared.condition({1: 0.3}), additive.marginal([0, 1, 3])]
        ),
    }


every_density = pytest.mark.parametrize("name", list(densities()))


@every_density
def test_the_same_generator_gives_the_same_samples(name):
    p = densities()[name]
    first, again = p.sample(30, generator=seeded(1)), p.sample(30, generator=seeded(1))
    assert torch.equal(first, again)
    assert not torch.equal(first, p.sample(30, generator=seeded(2)))
    generator = seeded(1)
    assert torch.equal(first, p.sample(30, generator=generator))
    assert not torch.equal(first, p.sample(30, generator=generator))
    assert not first.requires_grad


@every_density
def test_samples_are_possible_rows_in_double_precision(name):
    p = densities()[name]
    drawn = p.sample(200, generator=seeded())
    assert drawn.shape == (200, p.num_variables)
    assert drawn.dtype == DOUBLE
    assert p.log_prob(drawn).isfinite().all()


@every_density
def test_no_samples_are_an_empty_table(name):
    p = densities()[name]
    assert p.sample(0).shape == (0, p.num_variables)
    assert p.sample(given=torch.zeros(0, p.num_variables)).shape == (0, p.num_variables)
    assert p.sample(0, given={0: 0.0}).shape == (0, p.num_variables)


@every_density
def test_given_values_come_back_unchanged(name):
    p = densities()[name]
    table = p.sample(60, generator=seeded(1))
    table[torch.rand(table.shape, generator=seeded(2)) < 0.5] = NAN
    known = ~table.isnan()
    drawn = p.sample(given=table, generator=seeded())
    assert torch.equal(drawn[known], table[known])
    assert drawn.isfinite().all()
    assert len(drawn[~known].unique()) > 2
    value = table[known[:, 0], 0][0].item()
    drawn = p.sample(40, given={0: value}, generator=seeded())
    assert (drawn[:, 0] == value).all()


@every_density
def test_a_table_without_gaps_is_returned_as_it_is(name):
    p = densities()[name]
    table = p.sample(5, generator=seeded())
    assert torch.equal(p.sample(given=table), table)


@every_density
def test_a_mapping_is_a_table_of_equal_rows(name):
    p = densities()[name]
    value = p.sample(1, generator=seeded())[0, 1].item()
    table = nothing(30, p.num_variables)
    table[:, 1] = value
    from_mapping = p.sample(30, given={1: value}, generator=seeded(1))
    assert torch.equal(from_mapping, p.sample(given=table, generator=seeded(1)))
    assert torch.equal(from_mapping, p.sample(30, given=table, generator=seeded(1)))


def test_conditional_and_marginal_densities_sample_as_their_origin_does():
    p = densities()["squared"]
    given = p.sample(20, given={1: 0.3}, generator=seeded())
    assert torch.equal(p.condition({1: 0.3}).sample(20, generator=seeded()), given[:, [0, 2, 3]])
    marginal = p.marginal([3, 1]).sample(20, given={1: 0.3}, generator=seeded())
    assert torch.equal(marginal, given[:, [3, 1]])


def test_samples_do_not_depend_on_the_size_of_chunks(monkeypatch):
    models = {
        "gaussian": sub.SquaredCircuit(build("binary", "gaussian", outputs=2)),
        "spline": sub.SquaredCircuit(build("linear", "spline")),
        "embedding": sub.SquaredCircuit(build("flat", "embedding")),
    }
    expected = {name: p.sample(60, generator=seeded()) for name, p in models.items()}
    monkeypatch.setattr(quadratic_form_sampling, "_CHUNK", 100)
    for name, p in models.items():
        drawn = p.sample(60, generator=seeded())
        torch.testing.assert_close(drawn, expected[name], rtol=0, atol=1e-9)


@pytest.mark.parametrize("graph", GRAPHS)
def test_blocks_of_rows_are_samples_one_after_the_other(graph, monkeypatch):
    """With blocks of one row, n samples are n calls for one sample with the same generator."""
    p = sub.SquaredCircuit(build(graph, "gaussian", outputs=2))
    generator = seeded()
    one_by_one = torch.cat([p.sample(1, generator=generator) for _ in range(8)])
    monkeypatch.setattr(marginal, "_BLOCK", 1)
    monkeypatch.setattr(sampling, "BLOCK", 1)
    together = p.sample(8, generator=seeded())
    torch.testing.assert_close(together, one_by_one, rtol=0, atol=1e-9)


def test_rows_are_drawn_in_blocks_that_bound_the_memory(monkeypatch):
    p = sub.SquaredCircuit(build("binary", "embedding", num_units=8))
    sizes = []
    draw_state = quadratic_form_sampling.quadratic

    def watched(values, environment):
        sizes.append(len(environment))
        return draw_state(values, environment)

    monkeypatch.setattr(quadratic_form_sampling, "quadratic", watched)
    monkeypatch.setattr(marginal, "_BLOCK", 2**16)
    monkeypatch.setattr(sampling, "BLOCK", 2**16)
    p.sample(500)
    assert 500 > max(sizes) > 1
    assert sum(sizes) == 500 * 4


def test_a_mixture_gives_every_row_to_a_member_that_can_have_it():
    """Splines on (0, 1) and on (2, 3): the given value says which member it was."""
    members = [
        sub.SquaredCircuit(
            sub.Circuit(
                sub.flat(2), sub.Spline(5, domain=domain), num_units=3, seed=0, dtype=DOUBLE
            )
        )
        for domain in ((0.0, 1.0), (2.0, 3.0))
    ]
    p = sub.Mixture(members, weights=[0.99, 0.01])
    table = torch.tensor([[0.5, NAN], [2.5, NAN]] * 50, dtype=DOUBLE)
    drawn = p.sample(given=table, generator=seeded())
    assert ((drawn[0::2, 1] > 0) & (drawn[0::2, 1] < 1)).all()
    assert ((drawn[1::2, 1] > 2) & (drawn[1::2, 1] < 3)).all()


@every_kind(("graph", "order"), list(itertools.product(GRAPHS, [0, 1, 3])), together=1)
def test_samples_never_leave_the_domain_of_a_spline(graph, order):
    family = sub.Spline(7, order=order, domain=(-0.1, 0.3))
    circuit = sub.Circuit(
        GRAPHS[graph](3), family, num_units=3, initialise=sub.init.normal(), seed=0, dtype=DOUBLE
    )
    drawn = sub.SquaredCircuit(circuit).sample(2000, generator=seeded())
    assert (drawn >= -0.1).all()
    assert (drawn <= 0.3).all()
    positive = sub.Circuit(
        GRAPHS[graph](3),
        sub.Spline(7, order=order, domain=(-0.1, 0.3), non_negative=True),
        num_units=3,
        weights=sub.positive_weights,
        seed=0,
        dtype=DOUBLE,
    )
    drawn = sub.MonotonicCircuit(positive).sample(2000, generator=seeded())
    assert (drawn >= -0.1).all()
    assert (drawn <= 0.3).all()


def leaf_last(d):
    nested = 0
    for variable in range(1, d):
        nested = (nested, variable)
    return sub.RegionGraph.from_nested(nested)


BIG = {
    "linear": sub.linear_tree(250, seed=0),
    "linear, leaf last": leaf_last(120),
    "binary": sub.random_binary_tree(250, seed=0),
}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if "leaf" in n else pytest.mark.slow) for n in BIG]
)
@torch.no_grad()
def test_hundreds_of_variables_keep_their_dependence(name):
    circuit = sub.Circuit(
        BIG[name], sub.Gaussian(), num_units=4, initialise=sub.init.normal(), seed=0, dtype=DOUBLE
    )
    p, count = sub.SquaredCircuit(circuit), 200
    drawn = p.sample(count, generator=seeded())
    assert drawn.isfinite().all()
    scores = p.log_prob(drawn)
    assert scores.isfinite().all()
    # The same columns, but from different rows.
    strangers = torch.stack([column.roll(k) for k, column in enumerate(drawn.T)], 1)
    assert scores.mean() > p.log_prob(strangers).mean() + 10
    # Exact means, within their standard errors.
    error = (drawn.mean(0) - p.mean()) / (p.variance() / count).sqrt()
    assert error.abs().max() < 6
    assert error.square().mean() < 1.5


def test_far_evidence_that_disagrees_is_weighed_by_its_exponents():
    """Given x = ±t both units of a flat square are equally unlikely, by far more than e⁻⁷⁴⁵."""
    circuit = build("flat", "gaussian", d=3, num_units=2)
    with torch.no_grad():
        circuit.sum_layers[0].weights.value.copy_(torch.tensor([[[1.0, 2.0]]]))
        for layer in circuit.input_layers:
            layer.log_scale.zero_()
            layer.mean.copy_(torch.tensor([[-1.0, 1.0]]).expand(3, -1))
    p = sub.SquaredCircuit(circuit)
    for t in (10.0, 1000.0):
        given = nothing(200, 3)
        given[:, 0], given[:, 1] = t, -t
        check_undone(p, given)
        given[::2] = NAN
        check_undone(p, given)
        drawn = p.sample(10_000, given={0: t, 1: -t}, generator=seeded())
        share = p.condition({0: t, 1: -t}).probability({0: (None, 0.0)}).item()
        # Five standard errors.
        found = (drawn[:, 2] < 0).double().mean().item()
        assert abs(found - share) < 5 * math.sqrt(share * (1 - share) / 1e4)


def test_far_evidence_is_weighed_by_its_exponents_in_additive_circuits_too():
    circuit = build("flat", "gaussian", weights="positive", d=3, num_units=2)
    with torch.no_grad():
        circuit.sum_layers[0].weights.log_value.copy_(torch.tensor([[[1.0, 3.0]]]).log())
        for layer in circuit.input_layers:
            layer.log_scale.fill_(-3.0)
            layer.mean.copy_(torch.tensor([[-1.0, 1.0]]).expand(3, -1))
    p = sub.MonotonicCircuit(circuit)
    drawn = p.sample(10_000, given={0: 1000.0, 1: -1000.0}, generator=seeded())
    # A quarter comes from the first unit: five standard errors.
    assert abs((drawn[:, 2] < 0).double().mean().item() - 0.25) < 5 * math.sqrt(0.25 * 0.75 / 1e4)


def test_evidence_too_unlikely_to_draw_given_it_is_refused():
    circuit = build("binary", "gaussian", d=4, num_units=2)
    with torch.no_grad():
        for layer in circuit.sum_layers:  # sums that mix nothing: each unit keeps its exponent
            outputs = layer.weights.value.shape[1]
            layer.weights.value.copy_(torch.eye(2) if outputs == 2 else torch.ones(1, 2))
        for layer in circuit.input_layers:
            layer.log_scale.zero_()
            layer.mean.copy_(torch.tensor([[-1.0, 1.0]]).expand(4, -1))
    left, right = (
        min(circuit.graph.regions[child].scope)
        for child in circuit.graph.regions[-1].partitions[0].children
    )
    p = sub.SquaredCircuit(circuit)
    with pytest.raises(ArithmeticError, match="so unlikely that nothing can be drawn"):
        p.sample(3, given={left: 2000.0, right: -2000.0})


@pytest.mark.parametrize("count", [-1, 2.0, True, None, "many"])
def test_the_number_of_samples_is_a_whole_number(count):
    p = densities()["squared"]
    with pytest.raises(ValueError, match="num_samples must be a whole number of at least 0, got"):
        p.sample(count)
    with pytest.raises(ValueError, match="num_samples must be a whole number of at least 0, got"):
        p.sample(count, given={0: 1.0})


def test_a_table_says_itself_how_many_samples_it_yields():
    p = densities()["squared"]
    with pytest.raises(ValueError, match="one sample for each of its 3 rows, got num_samples=7"):
        p.sample(7, given=nothing(3, 4))


def test_given_values_must_be_possible():
    p = densities()["squared"]
    with pytest.raises(ValueError, match=r"unknown variable 4: expected integers from 0 to 3"):
        p.sample(2, given={4: 0.0})
    with pytest.raises(ValueError, match="the given value of variable 1 is NaN: leave it out"):
        p.sample(2, given={1: NAN})
    with pytest.raises(ValueError, match="needs finite values, got inf"):
        p.sample(2, given={1: math.inf})
    with pytest.raises(ValueError, match=r"x must have shape \(rows, 4\)"):
        p.sample(given=nothing(3, 5))
    spline = sub.SquaredCircuit(build("flat", "spline"))
    with pytest.raises(ValueError, match=r"the given values have probability zero in rows \[0, 1"):
        spline.sample(2, given={0: 7.0})
    states = sub.SquaredCircuit(build("flat", "embedding"))
    with pytest.raises(ValueError, match=r"variable 2 must hold whole numbers in 0..2, got 3"):
        states.sample(2, given={2: 3})


def test_a_written_out_square_cannot_be_sampled():
    squared = sub.materialise_square(build("flat", "gaussian", d=2))
    evidence = make_evidence(nothing(2, 2), None, squared.families, squared.device)
    with pytest.raises(ValueError, match="a written-out square is for study"):
        sample_square(squared, evidence, None)
