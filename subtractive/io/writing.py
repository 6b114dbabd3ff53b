"""Writing a file whole or not at all, or through what is no file: a pipe, a device.

A file is filled in a folder beside its target, under a lock that ends with the process, and then
put in its place. A folder without a lock was left by a process that was killed, and the next save
removes it.
"""

from __future__ import annotations

import errno
import glob
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import BinaryIO

from safetensors import SafetensorError

from subtractive.io.locking import lock, remove_if_unlocked

# Names of files that are already open: what stands behind them is not ours to replace.
_OPEN_FILES = ("/dev/fd/", "/dev/std", "/proc/")
_PERMISSIONS = "Change the permissions, or choose another place."
_SPACE = "Free some space, or choose another place."
_REMEDIES = {
    errno.ENOSPC: _SPACE,
    errno.EDQUOT: _SPACE,
    errno.EROFS: "Choose another place.",
    errno.EACCES: _PERMISSIONS,
    errno.EPERM: _PERMISSIONS,
}


def write_atomically(path: str | os.PathLike[str], write: Callable[[str], None]) -> None:
    """Let ``write`` fill a temporary file, then put it in the place of ``path`` at once.

    Whoever reads ``path`` sees the old contents or the new ones, whenever the process or the
    machine stops. Symbolic links are followed, and the permissions of an old file are kept. The
    bytes for a pipe or a device go through it.
    """
    if is_regular(path):
        with _replacing(path) as filled, telling_where(path):
            write(filled)
        return
    with tempfile.TemporaryDirectory() as folder:
        filled = os.path.join(folder, "file")
        with telling_where(path):
            write(filled)
            with open(filled, "rb") as source, open(path, "wb") as target:
                shutil.copyfileobj(source, target)


@contextmanager
def open_output(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file to write to as :func:`write_atomically` does, but piece by piece."""
    with _replacing(path) if is_regular(path) else nullcontext(path) as name:
        with telling_where(path):
            target = open(name, "wb")  # noqa: SIM115 - closed below
        try:
            yield target
        except BaseException:
            with suppress(OSError):  # it would hide the reason
                target.close()
            raise
        with telling_where(path):
            target.close()


def check_writable(path: str | os.PathLike[str]) -> None:
    """Fail now if writing would fail later for want of a place or a permission."""
    if is_regular(path):
        with telling_where(path), tempfile.TemporaryFile(dir=_folder(path)):
            pass
    elif not os.access(path, os.W_OK):
        raise PermissionError(f"cannot write {os.fspath(path)}: permission denied. {_PERMISSIONS}")


def is_regular(path: str | os.PathLike[str]) -> bool:
    """Whether a path is that of a file, or of none yet; a folder is refused."""
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return True
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(
            f"cannot write {os.fspath(path)}: it is a folder. Name a file in it."
        )
    return stat.S_ISREG(mode) and not os.path.abspath(path).startswith(_OPEN_FILES)


def partial_files(path: str | os.PathLike[str]) -> list[Path]:
    """What processes are writing beside ``path``, or have left there when they were killed."""
    target = Path(path)
    return list(target.parent.glob(f".{glob.escape(target.name)}.*.partial"))


@contextmanager
def telling_where(path: str | os.PathLike[str]) -> Iterator[None]:
    """Let errors of the system name ``path``, not a temporary file, and say what to do."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        number = _errno(error)
        if number is None:
            raise
        kind = type(error) if isinstance(error, OSError) else OSError
        reason = f"{os.strerror(number).lower()}. {_REMEDIES.get(number, '')}".rstrip()
        told = kind(f"cannot write {os.fspath(path)}: {reason}")
        told.errno = number
        raise told from error


@contextmanager
def _replacing(path: str | os.PathLike[str]) -> Iterator[str]:
    """The name of a file that takes the place of ``path`` when the block ends well."""
    target = Path(os.path.realpath(path))
    with telling_where(path):
        _folder(path)
        for leftover in partial_files(target):
            remove_if_unlocked(leftover)
        descriptor, folder = _locked_folder(target)
    filled = os.path.join(folder, "file")
    try:
        yield filled
        with telling_where(path):
            _keep_owner_and_mode(target, filled)
            _flush(filled)
            os.replace(filled, target)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)
    _flush(target.parent)


def _locked_folder(target: Path) -> tuple[int, str]:
    """A new folder beside the target; until it is locked, others may take it for a leftover.

    A folder, because whoever fills the file may do so by way of another one.
    """
    while True:
        folder = tempfile.mkdtemp(".partial", f".{target.name}.", target.parent)
        with suppress(FileNotFoundError):
            descriptor = os.open(folder, os.O_RDONLY)
            lock(descriptor)
            if os.path.exists(folder):
                return descriptor, folder
            os.close(descriptor)


def _folder(path: str | os.PathLike[str]) -> Path:
    folder = Path(os.path.realpath(path)).parent
    if not folder.is_dir():
        raise FileNotFoundError(
            f"cannot write {os.fspath(path)}: the folder {folder} does not exist. Create it first."
        )
    return folder


def _keep_owner_and_mode(target: Path, filled: str) -> None:
    """Those of the old file, or those that any new file of this user gets."""
    if not target.exists():
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(filled, 0o666 & ~mask)
        return
    old = target.stat()
    if hasattr(os, "chown"):
        with suppress(PermissionError):  # only root may give files away
            os.chown(filled, old.st_uid, old.st_gid)
    os.chmod(filled, stat.S_IMODE(old.st_mode))


def _errno(error: Exception) -> int | None:
    if isinstance(error, OSError):
        return error.errno
    # How safetensors passes it on, in newer and in older versions.
    found = re.search(r"(?:os error|code:) (\d+)", str(error))
    return int(found[1]) if found else None


def _flush(path: str | Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
