"""Full covariances beside other columns: EM against scikit-learn's, and what holes leave out."""

from __future__ import annotations

import math

import pytest
import torch
from sklearn.mixture import GaussianMixture

import subtractive as sub
from subtractive.learning.covariance_group import covariance_group
from subtractive.learning.em import fit_em
from subtractive.learning.hidden_chow_liu import hidden_chow_liu_tree

ATOMS = sub.WithAtoms(sub.Gaussian(), (0.0,), non_negative=True)
FAMILIES = [sub.Gaussian(), sub.Categorical(2), ATOMS]


def rows_of(count=400, seed=0):
    """Two columns on a line, one of them zero in a tenth of the rows, and their sign."""
    random = torch.Generator().manual_seed(seed)
    normal = torch.randn(count, 2, generator=random, dtype=torch.float64)
    first = normal[:, 0] + 3 * normal[:, 0].sign()
    second = first + 0.1 * normal[:, 1]
    second[torch.rand(count, generator=random) < 0.1] = 0.0
    return torch.stack([first, (first > 0).double(), second], 1)


def whole_passes(density, rows, epochs, **settings):
    return fit_em(
        density, rows, batches_per_step=math.inf, max_epochs=epochs, progress=False, **settings
    )


def test_a_step_is_that_of_a_gaussian_mixture():
    rows = rows_of()[:, [0, 2]]
    density = covariance_group(rows, [sub.Gaussian()] * 2, [0, 1], 2)
    layer = density.circuit.input_layers[0]
    factor = layer.family.full(layer.tensors(slice(None)))
    lower = factor["lower"][0] + factor["log_diagonal"][0].exp().diag_embed()
    mixture = GaussianMixture(
        2,
        max_iter=1,
        reg_covar=0,
        weights_init=density.circuit.sum_layers[0].weights()[0, 0].detach().numpy(),
        means_init=layer.get_tensor("mean")[0].detach().numpy(),
        precisions_init=(lower @ lower.mT).inverse().detach().numpy(),
    )
    with pytest.warns(UserWarning, match="did not converge"):
        mixture.fit(rows.numpy())
    whole_passes(density, rows, 1)
    found = torch.from_numpy(mixture.means_)
    torch.testing.assert_close(layer.get_tensor("mean")[0].detach(), found, rtol=1e-9, atol=1e-9)
    log_prob = torch.from_numpy(mixture.score_samples(rows.numpy()))
    # A millionth of the variances is added, so that no covariance is singular.
    torch.testing.assert_close(density.log_prob(rows).detach(), log_prob, rtol=0, atol=1e-3)


def test_the_likelihood_never_falls():
    rows = rows_of()
    rows[::7, 1] = math.nan
    group = covariance_group(rows, FAMILIES, [0, 2], 3)
    tree = hidden_chow_liu_tree(rows, FAMILIES, 2, dtype=torch.float64)
    density = sub.Mixture([tree, group], weights=[0.3, 0.7])
    scores = torch.tensor(whole_passes(density, rows, 12, patience=12).train)
    assert bool((scores.diff() >= -1e-9).all())
    assert scores[-1] > scores[0] + 0.01


def test_rows_at_an_atom_belong_to_the_tree():
    rows = rows_of()
    group = covariance_group(rows, FAMILIES, [0, 2], 2)
    at_atom = rows[:, 2] == 0
    assert bool((group.log_prob(rows[at_atom]) == -math.inf).all())
    assert bool(group.log_prob(rows[~at_atom]).isfinite().all())
    only_second = rows[at_atom].clone()
    only_second[:, :2] = math.nan
    assert bool((group.log_prob(only_second) == -math.inf).all())
    tree = hidden_chow_liu_tree(rows, FAMILIES, 2, dtype=torch.float64)
    density = sub.Mixture([tree, group], weights=[0.5, 0.5])
    whole_passes(density, rows, 20)
    zero = torch.full((1, 3), math.nan, dtype=torch.float64)
    zero[0, 2] = 0.0
    share = float(at_atom.double().mean())
    assert density.log_prob(zero).exp().item() == pytest.approx(share, abs=1e-3)
    assert density.log_partition().item() == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("family", [sub.MultivariateGaussian, sub.SemiTiedGaussian])
def test_holes_are_zeros_of_squares_as_well(family, tmp_path):
    inputs = family(norm=2, holes=((), (1.5,)))
    circuit = sub.Circuit(sub.flat([[0, 1]]), inputs, num_units=3, num_outputs=3, seed=0)
    density = sub.SquaredCircuit(circuit)
    x = torch.tensor([[1.5, 1.5], [0.0, 1.0], [math.nan, 1.5], [1.5, math.nan]])
    assert (density.log_prob(x) == -math.inf).tolist() == [True, False, True, False]
    density.save(tmp_path / "model.safetensors")
    again = sub.load(tmp_path / "model.safetensors")
    torch.testing.assert_close(again.log_prob(x), density.log_prob(x), rtol=0, atol=0)
