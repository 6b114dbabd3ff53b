"""Files are written whole or not at all, and read only if they are what was written."""

import json
import os
import random
import stat

import pytest
import torch
from safetensors.torch import save_file

from subtractive.io.files import FileFormatError, read_tensors, write_atomically, write_tensors

TENSORS = {
    "double": torch.tensor([1.0, -0.0, float("nan")], dtype=torch.float64),
    "matrix": torch.arange(6.0).reshape(2, 3).T,
    "scalar": torch.tensor(7),
    "bytes": torch.arange(5, dtype=torch.uint8),
    "none": torch.zeros(0, 3),
    "flags": torch.tensor([True, False]),
}
DESCRIPTION = {"name": "größe", "numbers": [1, 2.5, None], "infinite": float("inf")}


@pytest.fixture
def path(tmp_path):
    write_tensors(tmp_path / "file", "test", TENSORS, DESCRIPTION)
    return tmp_path / "file"


def test_what_is_written_is_read(path):
    tensors, description = read_tensors(path, "test")
    assert description == DESCRIPTION
    assert tensors.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert tensors[name].dtype == tensor.dtype
        torch.testing.assert_close(tensors[name], tensor, rtol=0, atol=0, equal_nan=True)


def test_tensors_may_share_memory(tmp_path):
    whole = torch.arange(4.0)
    write_tensors(tmp_path / "file", "test", {"a": whole, "b": whole[:2]}, {})
    tensors, _ = read_tensors(tmp_path / "file", "test")
    assert tensors["b"].tolist() == [0, 1]


def test_nothing_but_the_file_is_left(path):
    assert [entry.name for entry in path.parent.iterdir()] == ["file"]


def test_a_failure_while_writing_keeps_the_old_file(path):
    before = path.read_bytes()

    def fail(partial):
        with open(partial, "w") as file:
            file.write("half")
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        write_atomically(path, fail)
    assert path.read_bytes() == before
    assert [entry.name for entry in path.parent.iterdir()] == ["file"]


def test_the_file_is_as_readable_as_any_other(path):
    other = path.parent / "other"
    other.touch()
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(other.stat().st_mode)
    os.chmod(path, 0o600)
    write_tensors(path, "test", TENSORS, DESCRIPTION)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="does not exist. Create it first"):
        write_tensors(tmp_path / "nowhere" / "file", "test", TENSORS, {})


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no test file at .*nothing"):
        read_tensors(tmp_path / "nothing", "test")


# One bit of every byte, another one in each; and all of them where slow tests run.
@pytest.mark.parametrize("step", [9, pytest.param(1, marks=pytest.mark.slow)])
def test_every_flipped_bit_is_noticed(step, path):
    content = path.read_bytes()
    for place in range(0, 8 * len(content), step):
        damaged = bytearray(content)
        damaged[place // 8] ^= 1 << place % 8
        path.write_bytes(damaged)
        with pytest.raises(FileFormatError):
            read_tensors(path, "test")


def test_every_length_of_a_cut_off_file_is_noticed(path):
    content = path.read_bytes()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(FileFormatError):
            read_tensors(path, "test")


def test_bytes_of_another_program_are_refused(path):
    generator = random.Random(0)
    for length in range(200):
        path.write_bytes(generator.randbytes(length))
        with pytest.raises(FileFormatError, match="not a readable test file"):
            read_tensors(path, "test")


HEADERS = {
    "another program": ({"format": "pt"}, "not a test file: it says that it is 'pt'"),
    "no header": (None, "not a test file: .* another program"),
    "another kind": ({"format": "subtractive model"}, "says that it is 'subtractive model'"),
    "no version": ({"format": "subtractive test"}, "header is incomplete"),
    "a newer version": (
        {"format": "subtractive test", "version": "2", "description": "{}"},
        "newer version of subtractive .file version 2, this one reads up to 1",
    ),
    "a long version": (
        {"format": "subtractive test", "version": "9" * 5000, "description": "{}"},
        "newer version",
    ),
    "no checksum": (
        {"format": "subtractive test", "version": "1", "description": "{}"},
        "checksum does not match",
    ),
}


@pytest.mark.parametrize(("header", "message"), HEADERS.values(), ids=HEADERS)
def test_other_headers_are_refused(header, message, path):
    save_file({"a": torch.zeros(1)}, path, header)
    with pytest.raises(FileFormatError, match=message):
        read_tensors(path, "test")


def test_a_description_that_is_no_json_is_never_written(path):
    before = path.read_bytes()
    with pytest.raises(TypeError):
        write_tensors(path, "test", TENSORS, {"function": json.dumps})
    assert path.read_bytes() == before
