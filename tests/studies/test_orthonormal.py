"""Orthonormal forms of circuits of Kronecker products."""

import pytest
import torch

import subtractive as sub
from studies.digits.orthonormal import orthonormalise, project, retract, signed_qr

GRAPHS = {
    "binary": sub.random_binary_tree(5, seed=0),
    "linear": sub.linear_tree(4),
    "quad": sub.quad_tree(2, 3),
}


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_the_orthonormal_form_is_the_same_density_with_z_of_one(graph):
    circuit = sub.Circuit(
        graph,
        sub.Embedding(4),
        num_units=3,
        product=sub.KroneckerLayer,
        weights=sub.real_weights,
        seed=0,
        dtype=torch.float64,
    )
    with torch.no_grad():
        for number, parameter in enumerate(circuit.parameters()):
            generator = torch.Generator().manual_seed(number)
            parameter.normal_(generator=generator)
        p = sub.SquaredCircuit(circuit)
        x = torch.randint(0, 4, (20, graph.num_variables))
        before = p.log_prob(x)
        orthonormalise(circuit)
        torch.testing.assert_close(p.log_square(x), before, rtol=1e-10, atol=1e-10)
        assert abs(float(p.log_partition())) < 1e-12


def test_steps_stay_on_orthonormal_matrices_to_first_order():
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(2, 3, 7, generator=generator, dtype=torch.float64)
    matrix, triangle = signed_qr(start)
    torch.testing.assert_close(triangle @ matrix, start, rtol=0, atol=1e-12)
    matrix.grad = torch.randn(2, 3, 7, generator=generator, dtype=torch.float64)
    project([matrix])
    eye = torch.eye(3, dtype=torch.float64).expand(2, 3, 3)
    moved = matrix + 1e-5 * matrix.grad
    assert float((moved @ moved.mT - eye).abs().max()) < 1e-8  # 1e-5 without the projection
    matrix = moved.clone()
    retract([matrix])
    torch.testing.assert_close(matrix @ matrix.mT, eye, rtol=0, atol=1e-12)
    assert float((matrix - moved).abs().max()) < 1e-8
