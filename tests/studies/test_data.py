"""Real sets are cut and scaled as published, and missing or foreign files are named."""

import io
import sys
import tarfile

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from studies.data import partial, patches, uci
from studies.data.binary import load_binary
from studies.data.real import SETS, load_real
from studies.data.splits import as_splits, cut_tail


@pytest.fixture
def random():
    return np.random.default_rng(7)


def save(path, array):
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, array)


def test_the_shapes_are_those_of_the_published_table():
    assert {name: sum(shape[:3]) for name, shape in uci.SHAPES.items()} == {
        "power": 2_049_280,
        "gas": 1_052_065,
        "hepmass": 525_123,
        "miniboone": 36_488,
        "bsds300": 1_300_000,
    }
    for name in ("power", "gas", "miniboone"):  # a tenth is the test, a tenth of the rest valid
        train, valid, test, _ = uci.SHAPES[name]
        rest, held = cut_tail(np.zeros((train + valid + test, 0)))
        assert [len(part) for part in (*cut_tail(rest), held)] == [train, valid, test]


def test_power_loses_two_columns_is_dequantised_and_standardised(tmp_path, random):
    rows = random.integers(0, 9, size=(200, 8)).astype(float)
    rows[:, [1, 3]] = 1e6  # what must not be there any more
    save(tmp_path / "power" / "data.npy", rows)
    train, valid, test = uci.read_power(tmp_path)
    assert [len(part) for part in (train, valid, test)] == [162, 18, 20]
    rest = np.concatenate([train, valid])
    np.testing.assert_allclose(rest.mean(0), 0, rtol=0, atol=1e-12)
    np.testing.assert_allclose(rest.std(0), 1, rtol=1e-12, atol=0)
    # Columns 0, 2, 4..7 with noise of widths .001, .01, 1, 1, 1 and 0: all but the last differ.
    assert [len(np.unique(column)) for column in rest.T] == [180, 180, 180, 180, 180, 9]
    again = uci.read_power(tmp_path)
    np.testing.assert_array_equal(again[0], train)


def test_the_order_of_power_is_that_of_the_legacy_generator(tmp_path):
    rows = np.zeros((40, 8))
    rows[:, 7] = np.arange(40)  # the time of day, to which no noise is added
    save(tmp_path / "power" / "data.npy", rows)
    *_, test = uci.read_power(tmp_path)
    order = np.random.RandomState(42).permutation(40)
    rest = order[:36]
    expected = (order[36:] - rest.mean()) / rest.std()
    np.testing.assert_allclose(test[:, -1], expected, rtol=1e-12, atol=1e-12)


def test_gas_drops_labels_and_columns_that_repeat_others(tmp_path, random):
    frame = pd.DataFrame(random.normal(size=(100, 3)), columns=["a", "b", "c"])
    frame["copy"] = 3 * frame["b"] + 1e-3 * random.normal(size=100)
    frame[["Time", "Meth", "Eth"]] = 5.0
    (tmp_path / "gas").mkdir()
    frame.to_csv(tmp_path / "gas" / "ethylene_CO.csv", index=False)
    train, valid, test = uci.read_gas(tmp_path)
    assert [part.shape for part in (train, valid, test)] == [(81, 3), (9, 3), (10, 3)]
    kept = frame[["a", "c", "copy"]]  # of two that repeat each other the later one stays
    expected = ((kept - kept.mean()) / kept.std()).to_numpy()
    np.testing.assert_allclose(
        np.concatenate([train, valid, test]), expected, rtol=1e-9, atol=1e-12
    )


def test_a_pickle_is_not_read_unasked(tmp_path):
    (tmp_path / "gas").mkdir()
    (tmp_path / "gas" / "ethylene_CO.pickle").write_bytes(b"anything")
    with pytest.raises(ValueError, match=r"is a pickle, which may run any program .* convert it"):
        uci.read_gas(tmp_path)


def test_hepmass_keeps_the_signal_and_continuous_columns(tmp_path, random):
    (tmp_path / "hepmass").mkdir()
    frames = {}
    for part, count in {"train": 60, "test": 30}.items():
        frame = pd.DataFrame({"label": random.integers(0, 2, count)})
        frame["x"], frame["y"] = random.normal(size=(2, count))
        frame["discrete"] = random.integers(0, 2, count)
        frames[part] = frame
    frames["test"]["mass"] = 1000.0
    for part, frame in frames.items():
        frame.to_csv(tmp_path / "hepmass" / f"1000_{part}.csv", index=False)
    train, valid, test = uci.read_hepmass(tmp_path)
    signal = frames["train"][frames["train"].label == 1][["x", "y"]]
    held = frames["test"][frames["test"].label == 1][["x", "y"]]
    assert len(valid) == len(signal) // 10
    np.testing.assert_allclose(
        np.concatenate([train, valid]),
        ((signal - signal.mean()) / signal.std()).to_numpy(),
        rtol=1e-9,
        atol=1e-12,
    )
    np.testing.assert_allclose(
        test, ((held - signal.mean()) / signal.std()).to_numpy(), rtol=1e-9, atol=1e-12
    )


def test_miniboone_is_cut_and_standardised_by_all_but_the_test(tmp_path, random):
    rows = 5 + 3 * random.normal(size=(50, 4))
    save(tmp_path / "miniboone" / "data.npy", rows)
    train, valid, test = uci.read_miniboone(tmp_path)
    rest = rows[:45]
    np.testing.assert_allclose(
        np.concatenate([train, valid, test]),
        (rows - rest.mean(0)) / rest.std(0),
        rtol=1e-12,
        atol=1e-12,
    )
    assert len(valid) == 4


def test_image_patches_come_as_they_are_or_say_what_they_need(tmp_path, random, monkeypatch):
    parts = {name: random.normal(size=(3, 63)) for name in ("train", "validation", "test")}
    (tmp_path / "BSDS300").mkdir()
    np.savez(tmp_path / "BSDS300" / "BSDS300.npz", **parts)
    for part, expected in zip(uci.read_bsds300(tmp_path), parts.values(), strict=True):
        np.testing.assert_array_equal(part, expected)
    (tmp_path / "BSDS300" / "BSDS300.hdf5").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(ImportError, match=r"needs h5py: pip install h5py, or convert it to"):
        uci.read_bsds300(tmp_path)


@pytest.mark.parametrize("name", uci.READERS)
def test_a_missing_file_is_named(tmp_path, name):
    with pytest.raises(FileNotFoundError, match=rf"{name.upper()}: there is no file .*--data"):
        load_real(name, str(tmp_path))


def test_foreign_files_are_refused_by_their_shapes(tmp_path, random):
    save(tmp_path / "miniboone" / "data.npy", random.normal(size=(50, 43)))
    message = r"miniboone should have the shapes \(\(29556, 43\).* got \(\(41, 43\), \(4, 43\)"
    with pytest.raises(ValueError, match=message):
        load_real("miniboone", str(tmp_path))


def test_sets_are_known_by_name_and_need_a_folder():
    assert len(SETS) == 14
    with pytest.raises(ValueError, match=r"there is no set 'moons': choose from power, gas"):
        load_real("moons", "folder")
    with pytest.raises(ValueError, match="Name it with --data DIR"):
        load_real("power", "")
    with pytest.raises(ValueError, match=r"tables of finite numbers, .* with 1 numbers that"):
        as_splits((np.ones((2, 2)), np.full((1, 1), np.nan), np.ones((2, 2))), "note")


def test_patches_are_dequantised_by_a_fixed_seed(tmp_path, random):
    grey = {name: random.integers(0, 256, (20, 64)).astype(np.uint8) for name in PARTS}
    (tmp_path / "bsds300").mkdir()
    np.savez(tmp_path / "bsds300" / "bsds300_quarter_u8.npz", **grey)
    splits = partial.read_patches(tmp_path)
    assert splits.shapes == ((20, 63), (20, 63), (20, 63))
    centred = grey["train"] / 256 - grey["train"].mean(1, keepdims=True) / 256
    # Noise of one grey level, and that of the mean, move a pixel by less than one level each way.
    assert np.abs(splits.train.numpy() - centred[:, :-1]).max() < 1 / 256
    assert torch.equal(partial.read_patches(tmp_path).test, splits.test)
    assert not torch.equal(splits.train, splits.test)


PARTS = ("train", "valid", "test")


def test_parts_of_official_sets_keep_their_units(tmp_path, random):
    arrays = {"valid": 9 * random.normal(size=(40, 3)), "test": 9 * random.normal(size=(10, 3))}
    np.savez(tmp_path / "miniboone_partial.npz", **arrays)
    splits = partial.read_miniboone_part(tmp_path)
    assert splits.shapes == ((36, 3), (4, 3), (10, 3))
    together = np.concatenate([splits.train, splits.valid])
    expected = arrays["valid"].astype(np.float32)
    assert sorted(map(tuple, together)) == sorted(map(tuple, expected))
    np.testing.assert_array_equal(splits.test, arrays["test"].astype(np.float32))
    power = {name: random.normal(size=(5, 6)) for name in PARTS}
    np.savez(tmp_path / "power_subset.npz", **power)
    np.testing.assert_array_equal(
        partial.read_power_part(tmp_path).valid, power["valid"].astype(np.float32)
    )


def test_tables_are_cut_by_their_mask_and_scaled_by_training_rows(tmp_path, random):
    rows = np.c_[3 + 2 * random.normal(size=(50, 2)), np.ones(50)]  # and a constant column
    mask = np.arange(50) % 5 == 0
    np.savez(tmp_path / "kin40k.npz", x=rows, test_mask_0=mask)
    splits = load_real("kin40k", str(tmp_path)).head(0)
    assert splits.shapes == ((36, 3), (4, 3), (10, 3))
    train = splits.train.double().numpy()
    np.testing.assert_allclose(train.mean(0), 0, rtol=0, atol=1e-6)
    np.testing.assert_allclose(train.std(0), [1, 1, 0], rtol=1e-6, atol=1e-6)
    assert splits.head(7).shapes == ((7, 3), (4, 3), (7, 3))


def test_columns_with_frequent_values_or_in_other_units_have_no_density(tmp_path, random):
    first, second = random.normal(size=(2, 2000))
    rows = np.stack([first.round(1), first, 3 - 2 * first, second, np.where(first > 2, 0, second)])
    mask = np.arange(2000) % 10 == 0
    np.savez(tmp_path / "sml.npz", x=rows.T.astype(np.float32), test_mask_0=mask)
    splits = load_real("sml", str(tmp_path))
    assert splits.shapes == ((1620, 2), (180, 2), (200, 2))
    train = splits.train.double()
    np.testing.assert_allclose(train.std(0, correction=0), 1, rtol=1e-6, atol=0)
    expected = (first[mask], second[mask])
    for column, values in zip(splits.test.numpy().T, expected, strict=True):
        assert np.corrcoef(column, values)[0, 1] == pytest.approx(1, abs=1e-9)
    assert "its 2 continuous columns" in splits.note


def test_binary_sets_come_from_packed_bits_or_text(tmp_path, random):
    bits = {name: random.integers(0, 2, (6, 11)).astype(np.uint8) for name in PARTS}
    packed = {name: np.packbits(part, axis=1) for name, part in bits.items()}
    np.savez(tmp_path / "nltcs.npz", n_vars=11, **packed)
    for name, part in bits.items():
        np.savetxt(tmp_path / f"dna.{name}.data", part, fmt="%d", delimiter=",")
    for name in ("nltcs", "dna"):
        splits = load_binary(name, str(tmp_path))
        for part, expected in zip(splits.rows, bits.values(), strict=True):
            np.testing.assert_array_equal(part, expected)
    with pytest.raises(FileNotFoundError, match=r"binary set 'kdd': there is no file"):
        load_binary("kdd", str(tmp_path))
    with pytest.raises(ValueError, match="Name it with --data DIR"):
        load_binary("kdd", "")


def write_images(path, counts, random):
    """A tar file of small images of one grey level each, so that a patch tells its image."""
    with tarfile.open(path, "w") as archive:
        for part, count in counts.items():
            for number in range(count):
                grey = np.full((12, 9), (100 if part == "test" else 0) + number, np.uint8)
                data = io.BytesIO()
                Image.fromarray(grey).save(data, "PNG")
                member = tarfile.TarInfo(f"images/{part}/{number:03}.png")
                member.size = len(data.getvalue())
                data.seek(0)
                archive.addfile(member, data)


def test_patches_are_drawn_from_images_kept_apart(tmp_path, random):
    write_images(tmp_path / "images.tar", {"train": 25, "test": 3}, random)
    splits = patches.read_redrawn(tmp_path, (300, 200, 100))
    assert splits.shapes == ((300, 63), (200, 63), (100, 63))
    again = patches.read_redrawn(tmp_path, (300, 200, 100))
    assert torch.equal(again.train, splits.train)
    learned = patches.read_images(tmp_path / "images.tar", "train")
    assert [int(image[0, 0]) for image in learned] == list(range(25))
    order = np.random.default_rng(patches.SEED).permutation(25)
    drawn = [
        patches.draw_patches([learned[k] for k in some], 500, random)
        for some in (order[20:], order[:20])
    ]
    assert not set(drawn[0].ravel()) & set(drawn[1].ravel())
    assert (drawn[1] == drawn[1][:, :1]).all()  # whole patches come from one image


def test_a_patch_is_a_window_of_its_image(random):
    image = np.arange(20 * 30, dtype=np.uint16).reshape(20, 30).astype(np.uint8)
    windows = {image[r : r + 8, c : c + 8].tobytes() for r in range(13) for c in range(23)}
    drawn = patches.draw_patches([image], 400, random)
    assert {patch.tobytes() for patch in drawn} <= windows
    assert len({patch.tobytes() for patch in drawn}) > 50


def test_images_that_are_missing_are_named(tmp_path, random):
    with pytest.raises(FileNotFoundError, match=r"BSDS300 images: there is no file .*images\.tar"):
        patches.read_redrawn(tmp_path)
    write_images(tmp_path / "images.tar", {"train": 20, "test": 3}, random)
    with pytest.raises(ValueError, match="more than 20 of them in train: it has 20 in train"):
        patches.read_redrawn(tmp_path)
