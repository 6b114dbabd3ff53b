"""What is no regular file is written through, and whatever goes wrong is told with its place."""

import contextlib
import errno
import os
import stat
import subprocess
import threading
from pathlib import Path

import pytest
import torch
from processes import PROCESSES

from subtractive.io.files import read_tensors, write_tensors
from subtractive.io.writing import check_writable, open_output, partial_files, write_atomically

is_root = hasattr(os, "geteuid") and os.geteuid() == 0


def fill(partial):
    Path(partial).write_bytes(b"new")


def read_from(fifo):
    """A thread that reads a pipe to its end, and what it has read."""
    contents = []
    thread = threading.Thread(target=lambda: contents.append(Path(fifo).read_bytes()))
    thread.start()
    return thread, contents


def write_pieces(path):
    with open_output(path) as file:
        file.write(b"ne")
        file.write(b"w")


WRITERS = {
    "at once": lambda path: write_atomically(path, fill),
    "in pieces": write_pieces,
}


@pytest.fixture(params=WRITERS.values(), ids=WRITERS)
def write(request):
    return request.param


def test_a_pipe_stays_a_pipe_and_its_reader_gets_the_bytes(write, tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    check_writable(fifo)  # which does not wait for a reader
    thread, contents = read_from(fifo)
    write(fifo)
    thread.join(10)
    assert contents == [b"new"]
    assert stat.S_ISFIFO(fifo.stat().st_mode)


def test_tensors_go_through_pipes(tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    thread, contents = read_from(fifo)
    write_tensors(fifo, "test", {"a": torch.ones(2)}, {})
    thread.join(10)
    (tmp_path / "file").write_bytes(contents[0])
    assert read_tensors(tmp_path / "file", "test")[0]["a"].tolist() == [1, 1]


@pytest.mark.skipif(not is_root, reason="only root makes devices")
def test_a_device_stays_a_device(write, tmp_path):
    device = tmp_path / "null"
    os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    write(device)
    assert stat.S_ISCHR(device.stat().st_mode)


def test_links_are_followed(write, tmp_path):
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    for name, before in (("there", b"old"), ("not yet", None)):
        target, link = folder / name, tmp_path / f"link to {name}"
        if before:
            target.write_bytes(before)
        link.symlink_to(target)
        write(link)
        assert link.is_symlink()
        assert target.read_bytes() == b"new"
    assert sorted(entry.name for entry in folder.iterdir()) == ["not yet", "there"]


def test_permissions_and_owner_are_kept(write, tmp_path):
    path = tmp_path / "file"
    path.touch()
    path.chmod(0o640)
    if is_root:
        os.chown(path, 12345, 23456)
    before = path.stat()
    write(path)
    after = path.stat()
    assert stat.S_IMODE(after.st_mode) == 0o640
    assert (after.st_uid, after.st_gid) == (before.st_uid, before.st_gid)


def test_what_is_already_open_is_written_to(write, tmp_path):
    with open(tmp_path / "file", "wb") as file:
        inode = os.fstat(file.fileno()).st_ino
        write(f"/proc/self/fd/{file.fileno()}")
    assert (tmp_path / "file").stat().st_ino == inode
    assert (tmp_path / "file").read_bytes() == b"new"


def test_a_failure_between_pieces_keeps_the_old_file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def interrupted():
        with open_output(path) as file:
            file.write(b"ne")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


BAD_PLACES = {
    "a folder": (".", IsADirectoryError, "it is a folder. Name a file in it"),
    "no folder": ("no/file", FileNotFoundError, "does not exist. Create it first"),
    "a file for a folder": ("file/model", FileNotFoundError, "cannot write .*file/model"),
}


@pytest.mark.parametrize(("name", "error", "message"), BAD_PLACES.values(), ids=BAD_PLACES)
def test_bad_places_are_told_before_and_while_writing(name, error, message, write, tmp_path):
    (tmp_path / "file").touch()
    for attempt in (check_writable, write):
        with pytest.raises(error, match=message):
            attempt(tmp_path / name)
    assert os.listdir(tmp_path) == ["file"]


@contextlib.contextmanager
def small_disk(folder, options):
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
    if not is_root or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a small disk needs the right to mount one")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_is_told_and_the_old_file_stays(tmp_path):
    with small_disk(tmp_path / "disk", "size=256k") as disk:
        write_tensors(disk / "model", "test", {"a": torch.ones(3)}, {})
        message = "cannot write .*disk/model: no space left on device. Free some space"
        with pytest.raises(OSError, match=message) as caught:
            write_tensors(disk / "model", "test", {"a": torch.ones(10**6)}, {})
        assert caught.value.errno == errno.ENOSPC
        assert read_tensors(disk / "model", "test")[0]["a"].tolist() == [1, 1, 1]
        assert os.listdir(disk) == ["model"]


def test_a_disk_that_is_only_read_is_told(write, tmp_path):
    with small_disk(tmp_path / "disk", "ro") as disk:
        for attempt in (check_writable, write):
            with pytest.raises(OSError, match="read-only file system. Choose another place"):
                attempt(disk / "model")


@pytest.mark.skipif(is_root, reason="root may write anywhere")
def test_a_folder_of_others_is_told(write, tmp_path):
    tmp_path.chmod(0o500)
    for attempt in (check_writable, write):
        with pytest.raises(PermissionError, match="permission denied. Change the permissions"):
            attempt(tmp_path / "file")


def be_killed_while_writing(path):
    def write(partial):
        fill(partial)
        os.kill(os.getpid(), 9)

    write_atomically(path, write)


def test_the_next_save_removes_what_a_killed_one_has_left(write, tmp_path):
    path = tmp_path / "file"
    process = PROCESSES.Process(target=be_killed_while_writing, args=(path,))
    process.start()
    process.join(60)
    assert process.exitcode == -9
    assert len(partial_files(path)) == 1
    (tmp_path / ".file2.abc.partial").touch()  # of another target
    write(path)
    assert sorted(os.listdir(tmp_path)) == [".file2.abc.partial", "file"]


def test_a_save_under_way_is_left_alone(write, tmp_path):
    path = tmp_path / "file"

    def meanwhile(partial):
        write(path)
        assert partial_files(path) == [Path(partial).parent]
        fill(partial)

    write_atomically(path, meanwhile)
    assert os.listdir(tmp_path) == ["file"]


def save_often(path):
    for number in range(50):
        write_tensors(path, "test", {"a": torch.full((2,), float(number))}, {})


def test_processes_that_save_to_one_file_do_not_disturb_each_other(tmp_path):
    path = tmp_path / "file"
    processes = [PROCESSES.Process(target=save_often, args=(path,)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0] * 4
    assert read_tensors(path, "test")[0]["a"].tolist() == [49, 49]
    assert os.listdir(tmp_path) == ["file"]
