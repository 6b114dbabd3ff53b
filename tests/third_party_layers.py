"""Layers as somebody else would write them: they know the public names of the library alone."""

import math

import torch

import subtractive as sub


class Tripled(sub.Layer):
    """W (3 a ⊙ b): three times the Hadamard product."""

    @staticmethod
    def num_inputs(widths):
        return widths[0]

    def product(self, factors, folds):
        return 3 * math.prod(factors)


class Gated(sub.Layer):
    """W (g ⊙ a ⊙ b) with a learned gate for every region and unit."""

    def __init__(self, weights):
        super().__init__(weights)
        regions, _, num_products = weights().shape
        generator = torch.Generator().manual_seed(0)
        self.gate = torch.nn.Parameter(torch.randn(regions, num_products, generator=generator))

    @staticmethod
    def num_inputs(widths):
        return widths[0]

    def product(self, factors, folds):
        return self.gate[folds][:, None] * math.prod(factors)


class Neighbours(sub.Layer):
    """W of all a_i b_i c_i ... and all a_i b_{i+1} c_{i+2} ...: twice as many units as a child."""

    @staticmethod
    def num_inputs(widths):
        return 2 * widths[0]

    def product(self, factors, folds):
        shifted = [factor.roll(-slot, -1) for slot, factor in enumerate(factors)]
        return torch.cat([math.prod(factors), math.prod(shifted)], -1)


class Added(Tripled):
    """A product that is none: it adds its children."""

    def product(self, factors, folds):
        return sum(factors)


class Squared(Tripled):
    """A product that is not linear in its first child."""

    def product(self, factors, folds):
        return factors[0] * math.prod(factors)


class TooNarrow(Tripled):
    """A product with fewer units than ``num_inputs`` says."""

    def product(self, factors, folds):
        return math.prod(factors)[..., :1]
