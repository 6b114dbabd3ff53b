"""The laws that every change runs find mistakes: some are planted here, one at a time."""

from dataclasses import replace

import pytest
import torch
from laws import LAWS
from registry import KINDS, covering

import subtractive as sub
from subtractive.circuits import circuit as circuit_module
from subtractive.circuits import evaluation, layers
from subtractive.numerics.messages import LeafMessage


def wrong_gram_of(family):
    """The integrals of products of two different functions of one family are too small."""

    def plant(patch):
        right = family.gram

        def gram(self, p, q, window):
            message = right(self, p, q, window)
            others = 1 - torch.eye(message.shape[-1], dtype=message.some.dtype)
            factor = 1 - 0.1 * others
            if message.mantissa is None:
                return message._replace(mantissa=factor.expand(message.shape))
            return message._replace(mantissa=message.mantissa * factor)

        patch.setattr(family, "gram", gram)

    return plant


def gram_without_conjugate(patch):
    right = layers.mix_gram
    patch.setattr(layers, "mix_gram", lambda w, gram, v: right(w, gram, v.conj()))


def kronecker_gram_without_conjugate(patch):
    right = layers.mix_kronecker_gram
    patch.setattr(layers, "mix_kronecker_gram", lambda w, grams, v: right(w, grams, v.conj()))


def forgotten_sibling_where_messages_meet(patch):
    right = evaluation.contract
    patch.setattr(evaluation, "contract", lambda children: right(children[:2]))


def forgotten_sibling_below_hadamard(patch):
    right = layers.below_hadamard
    patch.setattr(
        layers,
        "below_hadamard",
        lambda above, siblings: right(above, siblings[1:]) if len(siblings) > 1 else above,
    )


def forgotten_sibling_below_kronecker(patch):
    right = layers.below_kronecker

    def below(above, siblings, slot):
        ones = torch.ones(siblings[0].shape, dtype=siblings[0].dtype)
        return right(above, [LeafMessage(ones, None), *siblings[1:]], slot)

    patch.setattr(layers, "below_kronecker", below)


def swapped_children_of_grams(patch):
    right = layers.mix_kronecker_gram
    patch.setattr(layers, "mix_kronecker_gram", lambda w, grams, v: right(w, grams[::-1], v))


def swapped_children_of_vectors(patch):
    right = layers.kronecker
    patch.setattr(layers, "kronecker", lambda vectors: right(vectors[::-1]))


def swapped_children_of_a_schedule(patch):
    """Evidence that differs between regions is read at one another's places."""
    right = circuit_module.fold

    def fold(nodes, places=None):
        schedule = right(nodes, places)
        if places is None:
            return schedule
        leaves = list(schedule.leaves)
        for number, leaf in enumerate(leaves):
            if isinstance(leaf.folds, list) and len(leaf.folds) > 1:
                leaves[number] = leaf._replace(folds=leaf.folds[::-1])
        return replace(schedule, leaves=tuple(leaves))

    patch.setattr(circuit_module, "fold", fold)


BUGS = {
    "wrong gram of Gaussians": wrong_gram_of(sub.Gaussian),
    "wrong gram of embeddings": wrong_gram_of(sub.Embedding),
    "wrong gram of splines": wrong_gram_of(sub.Spline),
    "wrong gram of complex Hadamard layers": gram_without_conjugate,
    "wrong gram of complex Kronecker layers": kronecker_gram_without_conjugate,
    "forgotten sibling where messages meet": forgotten_sibling_where_messages_meet,
    "forgotten sibling below Hadamard": forgotten_sibling_below_hadamard,
    "forgotten sibling below Kronecker": forgotten_sibling_below_kronecker,
    "swapped children of grams": swapped_children_of_grams,
    "swapped children of vectors": swapped_children_of_vectors,
    "swapped children of a schedule": swapped_children_of_a_schedule,
}


def is_broken(law, kind):
    try:
        law(kind)
    except (AssertionError, ArithmeticError, sub.CancellationWarning):
        return True
    return False


@pytest.mark.parametrize("plant", BUGS.values(), ids=BUGS)
def test_a_planted_bug_breaks_a_law_of_the_covering_set(plant, monkeypatch):
    plant(monkeypatch)
    assert any(is_broken(law, kind) for kind in covering(KINDS) for law in LAWS)
