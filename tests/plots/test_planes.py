"""Pictures are drawn without a screen and show what they are given."""

from subtractive.data.synthetic import ring_log_density
from subtractive.plots.planes import side_by_side


def test_densities_side_by_side_have_titles_notes_and_colours_from_zero(tmp_path):
    figure = side_by_side({"ring": ring_log_density}, extent=4.0, notes={"ring": "a note"})
    (axes,) = figure.axes
    assert axes.get_title() == "ring"
    assert axes.get_xlabel() == "a note"
    (image,) = axes.images
    assert image.get_clim()[0] == 0
    assert 0 < image.get_clim()[1] < 1
    values = image.get_array()
    assert values[80, 80] < 1e-6  # the centre of the ring
    figure.savefig(tmp_path / "ring.png")
    assert (tmp_path / "ring.png").stat().st_size > 1000
