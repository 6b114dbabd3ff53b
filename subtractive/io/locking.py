"""Locks on files that end with the process that holds them, however it ends."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys

if sys.platform == "win32":

    def lock(descriptor: int) -> None:
        """Do nothing: there are no such locks here."""

    def remove_if_unlocked(path: str | os.PathLike[str]) -> None:
        """Do nothing: nobody can tell whether a file belongs to a living process."""

else:
    import fcntl

    def lock(descriptor: int) -> None:
        """Lock an open file, if its file system has locks, after whoever holds it now."""
        with contextlib.suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)

    def remove_if_unlocked(path: str | os.PathLike[str]) -> None:
        """Remove a file or a folder unless a living process holds it, or may do so."""
        with contextlib.suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
            finally:
                os.close(descriptor)
