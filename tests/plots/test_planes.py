"""Pictures are drawn without a screen and show what they are given."""

import torch

import subtractive as sub
from subtractive.data.synthetic import ring_log_density
from subtractive.plots.planes import samples_and_slice, side_by_side


def test_densities_side_by_side_have_titles_notes_and_colours_from_zero(tmp_path):
    figure = side_by_side({"ring": ring_log_density}, extent=4.0, notes={"ring": "a note"})
    (axes,) = figure.axes
    assert axes.get_title() == "ring"
    assert axes.get_xlabel() == "a note"
    (image,) = axes.images
    assert image.get_clim()[0] == 0
    # The ring's density has a pole in its centre, which must not hide the ring.
    assert 0 < image.get_clim()[1] < 1
    figure.savefig(tmp_path / "ring.png")
    assert (tmp_path / "ring.png").stat().st_size > 1000


def test_a_slice_shows_the_exact_conditional_density():
    circuit = sub.Circuit(sub.flat(2), sub.Gaussian(), num_units=2, seed=0, dtype=torch.float64)
    density = sub.SquaredCircuit(circuit)
    figure = samples_and_slice(density, variable=0, given={1: 0.5}, extent=4.0)
    (line,) = figure.axes[2].lines
    points = torch.as_tensor(line.get_xdata())
    expected = density.condition({1: 0.5}).log_prob(points[:, None]).exp()
    torch.testing.assert_close(
        torch.as_tensor(line.get_ydata()), expected.detach(), rtol=1e-9, atol=1e-12
    )
    assert "x1 = 0.5" in figure.axes[2].get_title()
