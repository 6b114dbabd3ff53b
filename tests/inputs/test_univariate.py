"""Families that say nothing but their values: what follows from them, against scipy."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from oracles import gauss_legendre, grid
from scipy import integrate, stats
from torch import Tensor
from torch.autograd import gradcheck

import subtractive as sub
from subtractive.inputs.base import EVERYWHERE, FAMILIES, InputFamily, Window
from subtractive.inputs.quadrature import Line
from subtractive.inputs.univariate import UnivariateFamily
from subtractive.numerics.messages import LeafMessage

DOUBLE = torch.float64


@dataclass(frozen=True)
class Bumps(UnivariateFamily):
    """exp(κ cos(x - μ)) on the circle, cut at ±π."""

    @property
    def support(self) -> tuple[float, float]:
        return -math.pi, math.pi

    @property
    def is_non_negative(self) -> bool:
        return True

    def init(self, num_units, generator):
        return {
            "mean": torch.randn(num_units, generator=generator, dtype=DOUBLE),
            "sharpness": torch.rand(num_units, generator=generator, dtype=DOUBLE) * 4,
        }

    def values(self, p, x):
        return LeafMessage(None, p["sharpness"][:, None] * torch.cos(x - p["mean"][:, None]))


@dataclass(frozen=True)
class Waves(UnivariateFamily):
    """Signed functions with a kink at zero on a half-line: (a + b|x|) exp(-x²/2)."""

    @property
    def support(self) -> tuple[float, float]:
        return -2.0, math.inf

    @property
    def break_points(self) -> tuple[float, ...]:
        return (0.0,)

    def init(self, num_units, generator):
        draw = torch.randn(num_units, 2, generator=generator, dtype=DOUBLE)
        return {"height": draw}

    def values(self, p, x):
        size = (-0.5 * x.square()).exp()
        a, b = p["height"][:, None].unbind(-1)
        return LeafMessage((a + b * x.abs()) * size, None)


@dataclass(frozen=True)
class Logistics(UnivariateFamily):
    """Densities of the logistic distribution on the whole line."""

    @property
    def is_non_negative(self) -> bool:
        return True

    def init(self, num_units, generator):
        return {"mean": torch.randn(num_units, generator=generator, dtype=DOUBLE)}

    def values(self, p, x):
        z = x - p["mean"][:, None]
        return LeafMessage(
            None, torch.nn.functional.logsigmoid(z) + torch.nn.functional.logsigmoid(-z)
        )


@dataclass(frozen=True)
class Powers(UnivariateFamily):
    """Geometric sequences r^x on a few states."""

    @property
    def num_states(self) -> int:
        return 7

    @property
    def is_non_negative(self) -> bool:
        return True

    def init(self, num_units, generator):
        return {"log_ratio": torch.randn(num_units, generator=generator, dtype=DOUBLE)}

    def values(self, p, x):
        return LeafMessage(None, p["log_ratio"][:, None] * x)


CONTINUOUS = {"bumps": Bumps(), "waves": Waves(), "logistics": Logistics()}
ALL = CONTINUOUS | {"powers": Powers()}
CUTS = {"bumps": [-math.pi, math.pi], "waves": [-2.0, 0.0, 40.0], "logistics": [-60.0, 0.0, 60.0]}


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def tensors(family, regions=1, seed=0) -> dict[str, Tensor]:
    generator = seeded(seed)
    starts = [family.init(3, generator) for _ in range(regions)]
    return {name: torch.stack([start[name] for start in starts]) for name in starts[0]}


def expected(name, family, p, low, high, power, pair=True):
    """∫ x^power f_i f_j (or f_i) of one region by scipy, or the sum over its states."""

    def integrand(x):
        values = family.values(p, torch.tensor([[[x]]], dtype=DOUBLE)).value()[0, 0].numpy()
        return x**power * (np.outer(values, values) if pair else values)

    if name == "powers":
        return sum(integrand(float(v)) for v in range(7) if low < v <= high)
    cuts = [low, *CUTS[name], high]
    cuts = sorted({min(max(c, low, CUTS[name][0]), high, CUTS[name][-1]) for c in cuts})
    return sum(
        integrate.quad_vec(integrand, a, b, epsabs=1e-13, epsrel=1e-13)[0]
        for a, b in zip(cuts, cuts[1:], strict=False)
    ) + np.zeros((3, 3) if pair else 3)


@pytest.mark.parametrize("power", [0, 1, 2])
@pytest.mark.parametrize(("low", "high"), [(-math.inf, math.inf), (-0.7, 1.3), (0.2, math.inf)])
@pytest.mark.parametrize("name", ALL)
def test_integrals_and_grams_have_ten_digits(name, low, high, power):
    family, p = ALL[name], tensors(ALL[name])
    bounds = (torch.tensor([[end, end]], dtype=DOUBLE) for end in (low, high))
    window = Window(*bounds, power)
    gram = family.gram(p, p, window).value()
    integral = family.integral(p, window).value()
    whole = torch.from_numpy(expected(name, family, p, low, high, power))
    torch.testing.assert_close(gram[0], whole.expand(2, 3, 3), rtol=1e-9, atol=1e-10)
    whole = torch.from_numpy(expected(name, family, p, low, high, power, pair=False))
    torch.testing.assert_close(integral[0], whole.expand(2, 3), rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("name", ALL)
def test_cross_grams_are_blocks_of_the_gram_of_all_functions(name):
    family = ALL[name]
    p, q = tensors(family, 2), tensors(family, 2, seed=1)
    both = {key: torch.cat([p[key], q[key]], 1) for key in p}
    whole = family.gram(both, both, EVERYWHERE).value()
    found = family.gram(p, q, EVERYWHERE).value()
    torch.testing.assert_close(found, whole[..., :3, 3:], rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", ALL)
def test_many_windows_at_once_are_each_of_them(name, monkeypatch):
    family, p = ALL[name], tensors(ALL[name], 2)
    upper = torch.linspace(-3, 5, 14, dtype=DOUBLE).reshape(2, 7)
    together = family.gram(p, p, Window(upper=upper)).value()
    monkeypatch.setattr("subtractive.inputs.univariate.NUMBERS", 1)
    alone = family.gram(p, p, Window(upper=upper)).value()
    torch.testing.assert_close(together, alone, rtol=1e-12, atol=1e-13)
    assert alone.shape == (2, 7, 3, 3)


@pytest.mark.parametrize("name", CONTINUOUS)
def test_gradients_are_exact_also_in_the_bounds(name):
    family, p = ALL[name], tensors(ALL[name])
    lower, upper = (torch.tensor([[v, v + 0.3]], dtype=DOUBLE) for v in (-0.6, 0.4))
    learned = [tensor.clone().requires_grad_() for tensor in p.values()]

    def gram(low, high, *numbers):
        q = dict(zip(p, numbers, strict=True))
        return family.gram(q, q, Window(low, high)).value()

    assert gradcheck(gram, [lower.requires_grad_(), upper.requires_grad_(), *learned])


@pytest.mark.parametrize("name", ALL)
def test_quadratic_forms_and_units_are_drawn_with_their_law(name):
    """Kolmogorov and Smirnov, or chi-square; a false alarm in 1000."""
    family, p, n = ALL[name], tensors(ALL[name], 2), 1000
    one = {key: tensor[:1] for key, tensor in p.items()}
    root = torch.randn(3, 2, generator=seeded(2), dtype=DOUBLE)
    form = root @ root.mT
    drawn = family.draw_square(one, form.expand(n, -1, -1), seeded())
    check(
        family, drawn, lambda window: (form * family.gram(one, one, window).value()[0]).sum((1, 2))
    )
    if family.is_non_negative:
        drawn = family.draw_units(p, torch.ones(2, n, dtype=torch.long), seeded())
        for region in range(2):
            own = {key: tensor[region : region + 1] for key, tensor in p.items()}
            check(
                family,
                drawn[region],
                lambda window, own=own: family.integral(own, window).value()[0, :, 1],
            )


def check(family, drawn, mass):
    whole = float(mass(EVERYWHERE)[0])
    if family.num_states is not None:
        upper = torch.arange(family.num_states, dtype=DOUBLE)[None]
        shares = mass(Window(upper - 1, upper)) / whole
        counts = np.bincount(drawn.long().numpy(), minlength=family.num_states)
        assert stats.chisquare(counts, shares.numpy() * len(drawn)).pvalue > 1e-3
    else:
        below = mass(Window(upper=drawn[None])) / whole
        assert stats.kstest(below.numpy(), "uniform").pvalue > 1e-3
        assert (drawn >= family.support[0]).all()
        assert (drawn <= family.support[1]).all()


@pytest.mark.parametrize("name", ALL)
def test_a_circuit_of_them_is_normalised_and_has_marginals_and_samples(name):
    family = ALL[name]
    circuit = sub.Circuit(sub.flat(2), family, num_units=3, seed=0, dtype=DOUBLE)
    density = sub.SquaredCircuit(circuit)
    if name == "powers":
        axis = np.arange(7.0), np.ones(7)
    else:
        cuts = {"waves": [-2.0, 0.0, 9.0], "logistics": [-40.0, -8.0, 8.0, 40.0]}
        cuts = cuts.get(name, CUTS[name])
        spans = [gauss_legendre(a, b, 40) for a, b in zip(cuts, cuts[1:], strict=False)]
        axis = tuple(np.concatenate(part) for part in zip(*spans, strict=True))
    x, w = grid([axis] * 2)
    with torch.no_grad():
        mass = density.log_prob(x).exp() * w
        torch.testing.assert_close(float(mass.sum()), 1.0, rtol=0, atol=1e-8)
        torch.testing.assert_close(density.mean(), mass @ x, rtol=0, atol=1e-6)
        at = x[:, 0] == x[7, 0]
        row = torch.tensor([[float(x[7, 0]), math.nan]], dtype=DOUBLE)
        marginal = density.log_prob(row).exp()[0] * torch.from_numpy(axis[1])[0]
        torch.testing.assert_close(marginal, mass[at].sum(), rtol=1e-7, atol=0)
    density.condition({0: 1.0}).sample(5, generator=seeded())
    sub.fit(density, density.sample(50, generator=seeded()), max_epochs=2, progress=False)


@pytest.mark.parametrize(
    "ends", [(-1.0, 2.0), (-1.0, math.inf), (-math.inf, 2.0), (-math.inf, math.inf)]
)
def test_coordinates_of_a_line_are_those_of_its_points(ends):
    line = Line(*ends, (0.5,))
    x = torch.tensor([-1.0, -0.3, 0.5, 1.9, 2.0], dtype=DOUBLE)
    t = line.t(x).requires_grad_()
    torch.testing.assert_close(line.x(t), x, rtol=1e-13, atol=1e-13)
    (slope,) = torch.autograd.grad(line.x(t).sum(), t)
    torch.testing.assert_close(line.derivative(t), slope, rtol=1e-12, atol=1e-12)
    assert bool((line.edges == line.t(torch.tensor([0.5]))).any())
    torch.testing.assert_close(line.t(torch.tensor([math.inf]))[0], line.edges[-1], rtol=0, atol=0)


def test_a_window_beyond_everything_is_empty():
    for family in CONTINUOUS.values():
        p = tensors(family)
        far = torch.tensor([[math.inf]], dtype=DOUBLE)
        assert bool((family.gram(p, p, Window(far, far)).value() == 0).all())
        assert bool((family.gram(p, p, Window(-far, -far)).value() == 0).all())


def test_values_outside_the_support_are_refused():
    Bumps().check(torch.tensor([3.0, -3.0]), 1)
    with pytest.raises(
        ValueError, match=r"variable 1 must lie between -3\.14159 and 3\.14159, got 4"
    ):
        Bumps().check(torch.tensor([0.0, 4.0]), 1)
    with pytest.raises(ValueError, match="needs finite values"):
        Logistics().check(torch.tensor([math.inf]), 1)
    with pytest.raises(ValueError, match=r"whole numbers in 0\.\.6"):
        Powers().check(torch.tensor([7.0]), 1)


def test_defaults_need_no_more_than_a_start_and_values():
    assert UnivariateFamily.__abstractmethods__ == {"init", "values"}
    p = tensors(Bumps(), 2)
    assert Bumps().overlap(p).shape == (2, 3, 3)
    assert Bumps().overlap(p).all()
    assert Bumps().update_scale(p) == Bumps().constants(3) == {}
    assert Bumps().fold_key == Bumps().fold_key != Waves().fold_key
    assert FAMILIES.find(f"{__name__}.Bumps") is Bumps
    assert issubclass(Bumps, InputFamily)
