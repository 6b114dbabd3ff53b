"""The way down for samples of |c|² with one vector for each row, instead of a matrix.

The environment of a region is a sum of squares Σ_r (v_rᵀ a)² of its units a: one for each output
above, and one for each eigenvector of what is integrated out beside it. A sum of squares is a
mixture, so that a row may choose its term first, with the probability of that term, and go on
with a single square. Samples are exact as before; a step down costs K·K for a row, not K³.

It needs element-wise products, and what is integrated out must be the same for all rows.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from subtractive.circuits.circuit import Circuit
from subtractive.inference.outside import Call, Inside, Known, children_of, visit_inputs
from subtractive.inputs.outer_forms import OuterForm, products_of_pairs
from subtractive.inputs.quadratic_form_sampling import by_chunks, uniforms
from subtractive.numerics.inversion import choose_cell
from subtractive.numerics.messages import LeafMessage, multiply, normalise_rows
from subtractive.numerics.transforms import full_precision

# Of fewer rows, the eigenvectors would take longer than what they save.
LEAST_ROWS = 256

AtVectors = Callable[[int, OuterForm], LeafMessage | None]


def has_vectors(circuit: Circuit) -> bool:
    """Whether this way down is possible where what is integrated out is the same for all rows."""
    layers = circuit.sum_layers
    return all(layer.is_elementwise and not layer.weights().is_complex() for layer in layers)


def has_shared_grams(inside: Inside) -> bool:
    """Whether this way down is possible, and pays."""
    if inside.num_rows < LEAST_ROWS or not has_vectors(inside.circuit):
        return False
    grams = (m for m in inside.messages.values() if m.is_gram)
    return all(gram.shape[1] == 1 and not gram.dtype.is_complex for gram in grams)


@full_precision
def descend_by_vectors(
    inside: Inside, at_input: AtVectors, generator: torch.Generator | None
) -> None:
    """Visit every input region that is not observed, as :func:`descend` does."""
    circuit = inside.circuit

    def below(call: Call, above: dict[int, OuterForm], known: Known) -> OuterForm:
        region = call.region
        is_plain_input = not children_of(circuit, region) and region not in circuit.places.sums
        if call.parent is None:
            vector, gram = _of_root(inside, generator), None
        else:
            vector, gram = beside(inside, call.parent, region, above[call.parent].vectors, known)
        if gram is not None and not is_plain_input:
            vector, gram = _one_term(vector, gram, _gram(inside, region), generator), None
        if region in circuit.places.sums:
            vector = vector @ circuit.weight_of(region).double()
        return OuterForm(normalise_rows(vector), gram)

    visit_inputs(inside, below, at_input)


def _of_root(inside: Inside, generator: torch.Generator | None) -> Tensor:
    """Which output each row comes from, as one-hot vectors (n, s)."""
    masses = _gram(inside, inside.circuit.graph.root).diagonal()
    every = masses.expand(inside.num_rows, -1)
    chosen, _ = choose_cell(every, uniforms(inside.num_rows, generator))
    return torch.eye(len(masses), dtype=torch.float64)[chosen]


def beside(
    inside: Inside,
    parent: int,
    region: int,
    vector: Tensor,
    known: Known,
) -> tuple[Tensor, Tensor | None]:
    """u and G, if there is one: the environment ``u uᵀ ⊙ G`` of a child given its siblings.

    The vector is that of its parent's products, (n, i).
    """
    siblings = [child for child in children_of(inside.circuit, parent) if child != region]
    seen = [known[child] for child in siblings if child in known]
    missing = [inside.messages[child] for child in siblings if child not in known]
    if seen:
        vector = vector * multiply(seen).mantissa[0].double()
    gram = multiply(missing).mantissa[0, 0].double() if missing else None
    return normalise_rows(vector), gram


def _one_term(
    vector: Tensor, gram: Tensor, own: Tensor, generator: torch.Generator | None
) -> Tensor:
    """One vector (n, i) of ``u uᵀ ⊙ G = Σ_r (u ⊙ g_r)(u ⊙ g_r)ᵀ`` for each row.

    It is chosen by its share of the mass, the units of the region having the gram ``own`` (i, j).
    """
    # Units may differ in size by any factor: eigenvectors are those of a correlation matrix.
    size = gram.diagonal().clamp(min=0).sqrt()
    safe = torch.where(size > 0, size, 1.0)
    values, vectors = torch.linalg.eigh(gram / (safe[:, None] * safe))
    factor: Tensor = size[:, None] * vectors * values.clamp(min=0).sqrt()  # (i, r)
    # uᵀ (own ⊙ g_r g_rᵀ) u, by the pairs i <= j.
    forms = products_of_pairs(factor).mT * OuterForm(vector, own).factor()  # (r, P)
    uniform = uniforms(len(vector), generator)

    def choose(rows: slice) -> Tensor:
        u = vector[rows]
        masses = forms @ products_of_pairs(u.mT.contiguous())  # (r, n)
        chosen = choose_cell(masses.mT.contiguous(), uniform[rows])[0]
        return u * factor.mT[chosen]

    return by_chunks(choose, len(vector), forms.shape[1])


def _gram(inside: Inside, region: int) -> Tensor:
    """The gram (i, j) of a region that is not observed, up to a positive factor."""
    return multiply([inside.messages[region]]).mantissa[0, 0].double()
