"""Slow, naive versions of everything, written without the library's arithmetic.

They read the parameters of a circuit and nothing else: recursion over the region graph, one row
at a time, in plain Python numbers, numpy floats or mpmath numbers of 50 digits.
"""

import itertools
import math

import mpmath
import numpy as np
import torch
from scipy import interpolate, special, stats

from subtractive.circuits.layers import KroneckerLayer


def all_states(counts):
    """Every joint state of discrete variables, (states, d), as a float tensor."""
    return torch.tensor(list(itertools.product(*map(range, counts))), dtype=torch.float64)


def gauss_legendre(lower, upper, count):
    """Nodes and weights on an interval."""
    nodes, weights = np.polynomial.legendre.leggauss(count)
    half = (upper - lower) / 2
    return lower + half * (nodes + 1), half * weights


def grid(axes):
    """The product of rules [(nodes, weights), ...] on lines: points (n, d), weights (n,)."""
    points = np.stack([g.ravel() for g in np.meshgrid(*[a[0] for a in axes], indexing="ij")], -1)
    weights = np.prod(
        np.stack([g.ravel() for g in np.meshgrid(*[a[1] for a in axes], indexing="ij")], -1), -1
    )
    return torch.from_numpy(points), torch.from_numpy(weights)


def layer_of_region(circuit):
    """region -> (layer, weight matrix as numpy)."""
    place = {}
    for k, call in enumerate(circuit.schedule.calls):
        weight = circuit.sum_layers[k].weights().detach().numpy()
        for fold, region in enumerate(call.regions):
            place[region] = (circuit.sum_layers[k], weight[fold])
    return place


def input_of_region(circuit):
    """region -> (family, its tensors as numpy, scope)."""
    place = {}
    for k, leaf in enumerate(circuit.schedule.leaves):
        layer = circuit.input_layers[k]
        tensors = {name: t.detach().numpy() for name, t in layer.tensors(slice(None)).items()}
        for fold, region in enumerate(leaf.regions):
            numbers = {name: t[fold] for name, t in tensors.items()}
            place[region] = (layer.family, numbers, layer.scopes[fold])
    return place


def input_values(family, p, x):
    """f_1..f_K at one point of the region's variables, from scipy and numpy."""
    name = type(family).__name__
    if name == "Gaussian":
        return stats.norm.pdf(x[0], p["mean"], np.exp(p["log_scale"]))
    if name == "RBF":
        return np.exp(-0.5 * ((x[0] - p["centre"]) / np.exp(p["log_scale"])) ** 2)
    if name == "MultivariateGaussian":
        return np.array(
            [
                stats.multivariate_normal.pdf(x, mean, factor @ factor.T)
                for mean, factor in zip(p["mean"], cholesky(p), strict=True)
            ]
        )
    if name == "Categorical":
        return special.softmax(p["logits"], -1)[:, int(x[0])]
    if name == "Embedding":
        return p["table"][:, int(x[0])]
    if name == "Binomial":
        return stats.binom.pmf(x[0], family.total, special.expit(p["logit"]))
    if name == "Spline":
        return spline_values(family, p, x[0])
    if name == "WithAtoms":
        if x[0] not in family.atoms:
            return input_values(family.base, p, x)
        table = np.exp(p["log_atom"]) if family.non_negative else p["atom"]
        return table[:, family.atoms.index(x[0])]
    raise NotImplementedError(name)


def cholesky(p):
    diagonal = np.exp(p["log_diagonal"])
    return np.tril(p["lower"], -1) + diagonal[..., None] * np.eye(diagonal.shape[-1])


def spline_values(family, p, x):
    knots = p["knots"]
    if not knots[0] <= x <= knots[-1]:
        return np.zeros(len(next(iter(p.values()))))
    coefficients = np.exp(p["log_coefficient"]) if family.non_negative else p["coefficient"]
    spline = interpolate.BSpline(knots, coefficients.T, family.order, extrapolate=False)
    return spline(min(x, knots[-1] - 1e-15 * abs(knots[-1])))


def naive_value(circuit, row, leaf=input_values, number=lambda w: w):
    """c(x) of one row, one entry per output, as a list; ``number`` converts weights."""
    inputs, layers = input_of_region(circuit), layer_of_region(circuit)
    messages = {}
    for region, node in enumerate(circuit.graph.regions):
        if node.partitions:
            children = [messages[child] for child in node.partitions[0].children]
        else:
            family, p, scope = inputs[region]
            children = [list(leaf(family, p, [row[v] for v in scope]))]
            if region not in layers:
                messages[region] = children[0]
                continue
        layer, weight = layers[region]
        combos = (
            itertools.product(*children)
            if isinstance(layer, KroneckerLayer)
            else zip(*children, strict=True)
        )
        products = []
        for combo in combos:
            product = number(1.0)
            for factor in combo:
                product = product * factor
            products.append(product)
        messages[region] = [
            sum((number(w) * v for w, v in zip(line, products, strict=True)), number(0.0))
            for line in weight
        ]
    return messages[circuit.graph.root]


def naive_log_square(circuit, x):
    """log Σ_s |c_s|² of each row with numpy floats."""
    values = [sum(abs(v) ** 2 for v in naive_value(circuit, row)) for row in x.tolist()]
    return torch.tensor(np.log(values))


def mp_number(w):
    return mpmath.mpc(complex(w)) if np.iscomplexobj(w) else mpmath.mpf(float(w))


def mp_gaussian(family, p, x):
    """Gaussian input functions in arbitrary precision."""
    values = []
    for mean, log_scale in zip(p["mean"], p["log_scale"], strict=True):
        scale = mpmath.exp(mpmath.mpf(float(log_scale)))
        z = (mpmath.mpf(float(x[0])) - mpmath.mpf(float(mean))) / scale
        values.append(mpmath.exp(-z * z / 2) / (scale * mpmath.sqrt(2 * mpmath.pi)))
    return values


def mp_log_square(circuit, row):
    """log Σ_s |c_s(x)|² of a Gaussian circuit to 50 digits."""
    with mpmath.workdps(50):
        outputs = naive_value(circuit, row, leaf=mp_gaussian, number=mp_number)
        return float(mpmath.log(sum(abs(v) ** 2 for v in outputs)))


def mp_log_partition(circuit):
    """log Z of a Gaussian circuit of Hadamard layers to 50 digits: Algorithm 1 by hand."""
    return mp_log_square_integral(circuit, [math.nan] * circuit.num_variables)


def mp_log_square_integral(circuit, row):
    """log Σ_s ∫|c_s|² over the variables that are NaN in a row, to 50 digits."""
    with mpmath.workdps(50):
        inputs, layers = input_of_region(circuit), layer_of_region(circuit)
        grams = {}
        for region, node in enumerate(circuit.graph.regions):
            if node.partitions:
                children = [grams[child] for child in node.partitions[0].children]
            else:
                (variable,) = node.scope
                children = [_mp_gaussian_gram(inputs[region], row[variable])]
                if region not in layers:
                    grams[region] = children[0]
                    continue
            weight = [[mp_number(w) for w in line] for line in layers[region][1]]
            grams[region] = _mp_mixed(weight, _mp_hadamard(children))
        root = grams[circuit.graph.root]
        return float(mpmath.log(sum(root[s][s] for s in range(len(root))).real))


def _mp_gaussian_gram(functions, x):
    family, p, _ = functions
    if not math.isnan(x):
        values = mp_gaussian(family, p, [x])
        return [[one * other for other in values] for one in values]
    means = [mpmath.mpf(float(m)) for m in p["mean"]]
    variances = [mpmath.exp(2 * mpmath.mpf(float(s))) for s in p["log_scale"]]
    units = range(len(means))

    def entry(i, j):
        total = variances[i] + variances[j]
        distance = (means[i] - means[j]) ** 2
        return mpmath.exp(-distance / (2 * total)) / mpmath.sqrt(2 * mpmath.pi * total)

    return [[entry(i, j) for j in units] for i in units]


def _mp_hadamard(children):
    units = range(len(children[0]))
    product = [[mpmath.mpf(1)] * len(units) for _ in units]
    for child in children:
        product = [[product[i][j] * child[i][j] for j in units] for i in units]
    return product


def _mp_mixed(weight, gram):
    units = range(len(gram))
    return [
        [sum(a[i] * gram[i][j] * mpmath.conj(b[j]) for i in units for j in units) for b in weight]
        for a in weight
    ]


def integral_over_rectangle(log_density, low, high, points=801):
    """∫∫ exp(log_density) over a rectangle, by the trapezoidal rule on a fine grid."""
    lines = [
        torch.linspace(a, b, points, dtype=torch.float64) for a, b in zip(low, high, strict=True)
    ]
    values = log_density(torch.cartesian_prod(*lines)).exp().reshape(points, points)
    return float(torch.trapezoid(torch.trapezoid(values, lines[1]), lines[0]))
