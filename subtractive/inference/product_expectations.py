"""Expectations of sums of products of functions of single variables: polynomials, and more.

A product of functions h_d(x_d) of single variables changes only the inputs: ∫ h f fᵀ takes the
place of ∫ f fᵀ. One forward pass then gives the integral of |c|² times the product, of any sign.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import index
from typing import NamedTuple, final

import torch
from torch import Tensor

from subtractive.circuits.circuit import Circuit
from subtractive.circuits.evaluation import evaluate, root_of_grams
from subtractive.inference.evidence import Evidence, check_variables
from subtractive.inference.integration_points import integration_points
from subtractive.inference.marginal import (
    Leaf,
    labels,
    log_integral,
    log_square_integral,
    plain_leaf,
    square_leaf,
)
from subtractive.inputs.base import InputFamily, Tensors, TestFunctions, Window
from subtractive.inputs.layer import InputLayer
from subtractive.inputs.weighted_points import WeightedPoints
from subtractive.numerics.leaf_operations import side_by_side
from subtractive.numerics.messages import LeafMessage
from subtractive.regions.folding import LeafCall

Function = int | Callable[[Tensor], Tensor]  # a power, or values (q,) at points (q,)
Product = Mapping[int, Function]  # Π_d h_d(x_d), by variable
Terms = Sequence[tuple[float, Product]]

# How many terms are integrated together: each holds the grams of all regions.
_TERMS = 256


class Summands(NamedTuple):
    """Σ_t a_t Π_d h_td(x_d): coefficients (t,), and for each variable a function of each term."""

    coefficients: Tensor
    products: Sequence[Product]

    def split(self) -> list[Summands]:
        """The terms in groups that are integrated together."""
        return [
            Summands(self.coefficients[at : at + _TERMS], self.products[at : at + _TERMS])
            for at in range(0, len(self.products), _TERMS)
        ]

    def values(self, evidence: Evidence) -> Tensor:
        """The coefficients times the functions of what one row of evidence observes, (t,)."""
        total = self.coefficients
        for variable in evidence.observed[0].nonzero()[:, 0].tolist():
            x = evidence.x[0, variable].double()
            factors = [_value(product.get(variable, 0), x) for product in self.products]
            total = total * torch.stack(factors)
        return total

    def functions(self, evidence: Evidence) -> list[FunctionPerTerm | None]:
        """What is to be integrated of each variable, ``None`` for one or where observed."""
        found: list[FunctionPerTerm | None] = []
        for variable, is_observed in enumerate(evidence.observed[0].tolist()):
            own = tuple(product.get(variable, 0) for product in self.products)
            is_one = all(isinstance(function, int) and function == 0 for function in own)
            found.append(None if is_observed or is_one else FunctionPerTerm(own))
        return found


def as_summands(f: object, num_variables: int) -> Summands:
    """A product ``{variable: function}``, or a list of pairs (coefficient, product)."""
    terms = [(1.0, f)] if isinstance(f, Mapping) else f
    if not isinstance(terms, Sequence) or isinstance(terms, str) or not terms:
        raise ValueError(
            "expectation takes a product {variable: power or function}, a list of pairs "
            f"(coefficient, product), or a circuit, got {type(f).__name__}."
        )
    coefficients, products = [], []
    for term in terms:
        if not isinstance(term, Sequence) or len(term) != 2 or not isinstance(term[1], Mapping):
            raise ValueError(
                f"a term is a pair (coefficient, {{variable: power or function}}), got {term!r}."
            )
        variables = check_variables(list(term[1]), num_variables)
        functions = [_checked(function) for function in term[1].values()]
        coefficients.append(float(term[0]))
        products.append(dict(zip(variables, functions, strict=True)))
    return Summands(torch.tensor(coefficients, dtype=torch.float64), products)


def square_products(
    circuit: Circuit, evidence: Evidence, functions: Sequence[TestFunctions | None]
) -> Tensor:
    """E[Π_d h_td(x_d)] under Σ_s |c_s|² given one row of evidence, (t,)."""
    leaves = _all_leaves(circuit, evidence, functions, square_leaf)
    layers = circuit.sum_layers
    # As a cross gram with itself: functions of any sign leave no positive form.
    root = root_of_grams(circuit.schedule, layers, leaves, others=layers)
    total = root.mantissa[0].diagonal(dim1=-2, dim2=-1).sum(-1).real
    return total * (root.log_scale[0] - log_square_integral(circuit, evidence)).exp()


def plain_products(
    circuit: Circuit, evidence: Evidence, functions: Sequence[TestFunctions | None]
) -> Tensor:
    """The same under a monotonic circuit."""
    leaves = _all_leaves(circuit, evidence, functions, plain_leaf)
    by_regions = {
        call.regions: leaf for call, leaf in zip(circuit.schedule.leaves, leaves, strict=True)
    }

    def source(call: LeafCall, rows: Tensor | None, dtype: torch.dtype | None) -> LeafMessage:
        leaf = by_regions[call.regions]
        return leaf if rows is None else leaf.rows(rows)

    root = evaluate(circuit.schedule, circuit.sum_layers, source)
    log_ratio = root.log_scale[0] - log_integral(circuit, evidence)
    return root.mantissa[0].double().sum(-1) * log_ratio.exp()


@final
@dataclass(frozen=True)
class FunctionPerTerm(TestFunctions):
    """A function of one variable for each term: powers in closed form, others by quadrature."""

    functions: tuple[Function, ...]

    @property
    def count(self) -> int:
        return len(self.functions)

    def of_products(self, family: InputFamily, p: Tensors) -> LeafMessage:
        return self._joined(
            lambda power: family.gram(p, p, Window(power=power)),
            lambda points: points.of_products(family, p),
            self._points(family, p),
        )

    def of_functions(self, family: InputFamily, p: Tensors) -> LeafMessage:
        return self._joined(
            lambda power: family.integral(p, Window(power=power)),
            lambda points: points.of_functions(family, p),
            self._points(family, p),
        )

    def of_gaussians(self, weights: Tensor, mean: Tensor, scale: Tensor) -> Tensor:
        raise NotImplementedError("regions of several variables are refused before")

    def _points(self, family: InputFamily, p: Tensors) -> WeightedPoints | None:
        smooth = [function for function in self.functions if not isinstance(function, int)]
        if not smooth:
            return None
        points, weights = integration_points([(family, p)])
        heights = torch.stack([_at_points(function, points) for function in smooth])
        return WeightedPoints(points, heights * weights)

    def _joined(
        self,
        of_power: Callable[[int], LeafMessage],
        of_points: Callable[[WeightedPoints], LeafMessage],
        points: WeightedPoints | None,
    ) -> LeafMessage:
        """All terms in their order, (f, t, ...): equal powers are integrated once."""
        powers = sorted({function for function in self.functions if isinstance(function, int)})
        parts = [of_power(power) for power in powers]
        if points is not None:
            parts.append(of_points(points))
        order, others = [], len(powers)
        for function in self.functions:
            if isinstance(function, int):
                order.append(powers.index(function))
            else:
                order.append(others)
                others += 1
        return side_by_side(parts, axis=1).rows(torch.tensor(order))


def _all_leaves(
    circuit: Circuit, evidence: Evidence, functions: Sequence[TestFunctions | None], leaf: Leaf
) -> list[LeafMessage]:
    """The messages of all leaves of the circuit's schedule, one row for each term."""
    known = labels(circuit, evidence)
    count = max((function.count for function in functions if function is not None), default=1)

    def message(layer: InputLayer, call: LeafCall) -> LeafMessage:
        scope: list[int] = layer.variables[call.folds][0].tolist()
        asked = [functions[variable] for variable in scope]
        if all(function is None for function in asked):
            found = leaf(layer, call, evidence, torch.float64)
            return found.outer() if leaf is square_leaf and not found.is_gram else found
        if len(scope) > 1:
            raise ValueError(
                f"there is no closed form for functions of the variables {scope}, which share one "
                "input region. Give each variable a region of its own; mean(), variance() and "
                "covariance() answer here, too."
            )
        function = asked[0]
        assert function is not None
        p = layer.tensors(call.folds, torch.float64)
        family: InputFamily = layer.family
        is_square = leaf is square_leaf
        return function.of_products(family, p) if is_square else function.of_functions(family, p)

    messages = []
    for call in circuit.schedule.leaves:
        layer = circuit.input_layers[call.layer]
        regions = [
            message(layer, LeafCall((region,), call.layer, slice(at, at + 1), known[region]))
            for at, region in enumerate(call.regions)
        ]
        repeated = [m.map(lambda t: t.expand(-1, count, *t.shape[2:])) for m in regions]
        messages.append(side_by_side(repeated))
    return messages


def _checked(function: object) -> Function:
    if callable(function):
        return function
    try:
        power = -1 if isinstance(function, bool) else index(function)  # type: ignore[arg-type]
    except TypeError:
        power = -1
    if power < 0:
        raise ValueError(
            "a function of a variable is a power 0, 1, 2, ... or a function of a tensor, got "
            f"{function!r}."
        )
    return power


def _at_points(function: Callable[[Tensor], Tensor], points: Tensor) -> Tensor:
    heights = function(points)
    if not isinstance(heights, Tensor) or heights.shape != points.shape:
        got = tuple(heights.shape) if isinstance(heights, Tensor) else type(heights).__name__
        raise ValueError(
            f"a function of a variable must return a tensor of the shape of its argument, "
            f"{tuple(points.shape)}, got {got}."
        )
    return heights.double()


def _value(function: Function, x: Tensor) -> Tensor:
    """The function at one point, a scalar."""
    return x**function if isinstance(function, int) else _at_points(function, x[None])[0]
