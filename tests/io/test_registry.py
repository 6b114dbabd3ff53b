"""Classes of users in files: saved by name, found again once defined, never imported by a file."""

import importlib
import sys
from dataclasses import dataclass, field

import pytest
import torch
from processes import call

import subtractive as sub
from subtractive.circuits.layers import LAYERS
from subtractive.circuits.weights import WEIGHTS, Weights
from subtractive.inputs.base import FAMILIES
from subtractive.inputs.semi_tied_gaussian import SemiTiedGaussian
from subtractive.inputs.univariate import UnivariateFamily
from subtractive.io.files import read_tensors, write_tensors
from subtractive.io.registry import Registry, name_in_files
from subtractive.numerics.messages import LeafMessage

MODULE = '''
import torch
from dataclasses import dataclass
from subtractive.inputs.univariate import UnivariateFamily
from subtractive.numerics.messages import LeafMessage

@dataclass(frozen=True)
class Cosines(UnivariateFamily):
    """1 + a cos(r x) on the unit interval."""

    rates: tuple[float, ...] = (1.0,)

    @property
    def support(self):
        return 0.0, 1.0

    def init(self, num_units, generator):
        return {"height": torch.rand(num_units, len(self.rates), generator=generator).double()}

    def values(self, p, x):
        waves = torch.cos(x * torch.tensor(self.rates, dtype=x.dtype))  # (f, n, r)
        return LeafMessage(1 + waves @ p["height"].mT, None)
'''


def load_in_a_process(folder):
    """What a process answers that has not seen the package: before it is imported, and after."""
    sys.path.insert(0, str(folder))
    with pytest.raises(sub.FileFormatError) as refused:
        sub.load(folder / "model")
    imported = "my_package" in sys.modules
    importlib.import_module("my_package.families")
    density = sub.load(folder / "model")
    scores = density.log_prob(torch.full((1, 2), 0.5, dtype=torch.float64))
    return imported, str(refused.value), scores.isfinite().item()


def test_a_family_of_another_package_is_loaded_once_its_module_is_imported(tmp_path, monkeypatch):
    package = tmp_path / "my_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "families.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    family = importlib.import_module("my_package.families").Cosines((1.0, 2.5))
    circuit = sub.Circuit(sub.flat(2), family, num_units=2, seed=0, dtype=torch.float64)
    sub.SquaredCircuit(circuit).save(tmp_path / "model")
    for name in ("my_package", "my_package.families"):
        sys.modules.pop(name)
    description = read_tensors(tmp_path / "model", "model")[1]
    (name,) = {entry["family"] for entry in description["density"]["circuit"]["families"]}
    assert name == "my_package.families.Cosines"
    imported, refused, loaded = call(load_in_a_process, tmp_path)
    assert loaded
    assert not imported  # the file did not make Python import the module
    assert "import the module that defines it first" in refused


@dataclass(frozen=True)
class Flat(UnivariateFamily):
    """Heights on the unit interval."""

    scale: float = 1.0

    @property
    def support(self):
        return 0.0, 1.0

    def init(self, num_units, generator):
        return {"height": torch.rand(num_units, generator=generator, dtype=torch.float64)}

    def values(self, p, x):
        return LeafMessage(self.scale * p["height"][:, None].expand(-1, x.shape[1], -1), None)


@dataclass(frozen=True)
class Doubling(UnivariateFamily):
    """A constructor that changes what it is given."""

    scale: float = 1.0

    def __post_init__(self):
        object.__setattr__(self, "scale", 2 * self.scale)

    init, values = Flat.init, Flat.values


@dataclass(frozen=True)
class Hidden(UnivariateFamily):
    """A fact that the constructor does not take."""

    scale: float = field(default=1.0, init=False)
    init, values = Flat.init, Flat.values


@dataclass(frozen=True)
class Opaque(UnivariateFamily):
    """A fact that no file can hold."""

    function: object = print
    init, values = Flat.init, Flat.values


class Plain(UnivariateFamily):
    """No dataclass."""

    init, values = Flat.init, Flat.values


def local():
    @dataclass(frozen=True)
    class Local(UnivariateFamily):
        init, values = Flat.init, Flat.values

    return Local()


def replaced():
    before = Flat()
    Registry.add(FAMILIES, type("Flat", (UnivariateFamily,), {"__module__": __name__}))
    return before


def squared(family):
    return sub.SquaredCircuit(sub.Circuit(sub.flat(1), family, num_units=2, seed=0))


UNSAVED = {
    "changed": (lambda: Doubling(3.0), "must be equal to what its constructor makes"),
    "hidden": (Hidden, "must be equal to what its constructor makes"),
    "opaque": (Opaque, "must be equal to what its constructor makes"),
    "no dataclass": (Plain, "Plain must be a frozen dataclass to be saved"),
    "local": (local, "defined inside a function cannot be saved"),
    "inside atoms": (lambda: sub.WithAtoms(local()), "defined inside a function"),
    "defined again": (replaced, "names another input family by now"),
}


@pytest.mark.parametrize(("make", "message"), UNSAVED.values(), ids=UNSAVED)
def test_a_family_that_could_not_be_loaded_is_not_saved(make, message, tmp_path):
    try:
        density = squared(make())
        with pytest.raises(ValueError, match=message):
            density.save(tmp_path / "model")
        assert not (tmp_path / "model").exists()
    finally:
        FAMILIES.add(Flat)


class Tripled(sub.SumLayer.__base__):
    """A Hadamard layer times a learned number."""

    def __init__(self, weights):
        super().__init__(weights)
        self.gate = torch.nn.Parameter(torch.ones(()))

    num_inputs = staticmethod(sub.HadamardLayer.num_inputs)


class TakesMore(Tripled):
    """A constructor with another argument."""

    def __init__(self, weights, factor):
        super().__init__(weights)


class ShapeOfItsOwn(Tripled):
    """A parameter whose shape the constructor cannot know."""

    def __init__(self, weights, size=1):
        super().__init__(weights)
        self.gate = torch.nn.Parameter(torch.ones(size))


class Halves(Weights):
    """Half of a parameter."""

    def __init__(self, value):
        super().__init__()
        self.twice = torch.nn.Parameter(2 * value)

    def forward(self):
        return 0.5 * self.twice

    def multiply_by(self, factor):
        self.twice.data.mul_(factor)

    is_non_negative = False


class TwoParameters(Halves):
    """One parameter too many."""

    def __init__(self, value):
        super().__init__(value)
        self.other = torch.nn.Parameter(value)


def concrete(kind, *arguments):
    """An instance without the abstract methods of layers, which are not asked for here."""
    full = type(kind.__name__, (kind,), {"__module__": __name__, "__qualname__": kind.__name__})
    full.__abstractmethods__ = frozenset()
    LAYERS.add(full)
    return full(sub.real_weights((1, 2, 2), sub.init.uniform(), None), *arguments)


def test_layers_of_others_have_a_name_in_files_if_weights_build_them():
    assert concrete(Tripled).name_in_files == f"{__name__}.Tripled"
    with pytest.raises(ValueError, match=r"TakesMore\(weights\) fails"):
        _ = concrete(TakesMore, 3).name_in_files
    with pytest.raises(ValueError, match=r"ShapeOfItsOwn\(weights\) has other parameters"):
        _ = concrete(ShapeOfItsOwn, 3).name_in_files


def test_weights_of_others_are_loaded_as_they_were(tmp_path):
    def halves(shape, initialise, generator):
        return Halves(initialise(shape, generator))

    circuit = sub.Circuit(sub.flat(2), sub.Gaussian(), num_units=2, weights=halves, seed=0)
    density = sub.SquaredCircuit(circuit)
    density.save(tmp_path / "model")
    x = torch.zeros(1, 2)
    assert torch.equal(sub.load(tmp_path / "model").log_prob(x), density.log_prob(x))
    with pytest.raises(ValueError, match="only one, got"):
        _ = TwoParameters(torch.ones(1, 2, 2)).name_in_files


def test_files_that_call_semi_tied_gaussians_by_their_old_name_still_load(tmp_path):
    density = sub.learning.semi_tied_mixture(torch.randn(50, 2), 2, 3)
    density.save(tmp_path / "model")
    tensors, description = read_tensors(tmp_path / "model", "model")
    for member in description["density"]["members"]:
        for entry in member["circuit"]["families"]:
            assert entry["family"] == "SemiTiedGaussian"
            entry["family"] = "TiedGaussian"
    write_tensors(tmp_path / "old", "model", tensors, description)
    x = torch.zeros(1, 2)
    assert torch.equal(sub.load(tmp_path / "old").log_prob(x), density.log_prob(x))
    assert FAMILIES.find("TiedGaussian") is SemiTiedGaussian


@pytest.mark.parametrize("name", ["Products", "os.system", "InputFamily", "Nothing", 3, None])
def test_a_description_cannot_name_anything_else(name, tmp_path):
    density = squared(sub.Gaussian())
    density.save(tmp_path / "model")
    tensors, description = read_tensors(tmp_path / "model", "model")
    description["density"]["circuit"]["families"] = [{"family": name}]
    write_tensors(tmp_path / "model", "model", tensors, description)
    with pytest.raises(sub.FileFormatError, match="does not describe a model"):
        sub.load(tmp_path / "model")


def test_names_of_this_package_are_short():
    assert name_in_files(sub.Gaussian) == "Gaussian"
    assert name_in_files(Flat) == f"{__name__}.Flat"
    for registry, kind in ((FAMILIES, sub.Spline), (LAYERS, sub.SumLayer)):
        assert registry.find(registry.name_of(kind)) is kind
    with pytest.raises(ValueError, match="unknown kind of weights 'Nothing'"):
        WEIGHTS.find("Nothing")
