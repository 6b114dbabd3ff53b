"""Who does which run: claims of several processes, on several machines, in one folder.

A claim is a file that only one process can create. As long as its owner lives it is touched every
few seconds; a claim that has not been touched for a while, or whose process on this machine is
gone, is given up, and the next one may take it. Claims only spare work. Nothing is wrong if two
processes do the same run, say after one of them slept: records are written at once, and are the
same. So a file system that creates files exclusively is all it takes, no server and no lock.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Seconds between signs of life, and of silence after which a claim is given up.
HEARTBEAT, SILENCE = 10.0, 60.0


@dataclass(frozen=True)
class Claims:
    """The claims in a folder.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     claims = Claims(Path(folder))
    ...     with claims.hold("seed=1") as first, claims.hold("seed=1") as second:
    ...         (first, second)
    (True, False)
    """

    folder: Path
    heartbeat: float = HEARTBEAT
    silence: float = SILENCE

    @contextmanager
    def hold(self, name: str) -> Iterator[bool]:
        """Claim something for the time of a block; whether it was free."""
        path = self.folder / f"{name}.claim"
        token = self._take(path)
        if token is None:
            yield False
            return
        done = threading.Event()
        beating = threading.Thread(target=self._beat, args=(path, token, done), daemon=True)
        beating.start()
        try:
            yield True
        finally:
            done.set()
            beating.join()
            if _read(path).get("token") == token:
                path.unlink(missing_ok=True)

    def owner(self, name: str) -> str | None:
        """The process that holds a claim, as ``machine:number``; None if nobody does."""
        path = self.folder / f"{name}.claim"
        found = _read(path)
        if not found or self._is_given_up(path, found):
            return None
        return f"{found.get('machine')}:{found.get('process')}"

    def _take(self, path: Path) -> str | None:
        """Create the claim; its token, or None if somebody holds it."""
        token = uuid.uuid4().hex
        if _create(path, token):
            return token
        found = _read(path)
        if not self._is_given_up(path, found):
            return None
        # Only one process can move the file away. Whoever moves a newer claim by mistake, because
        # another process was faster, costs that one its claim and nobody a result.
        aside = path.with_suffix(f".{token}")
        with contextlib.suppress(FileNotFoundError):
            path.rename(aside)
            aside.unlink()
        return token if _create(path, token) else None

    def _is_given_up(self, path: Path, found: dict[str, Any]) -> bool:
        if found.get("machine") == socket.gethostname() and not _lives(found.get("process")):
            return True
        try:
            return self._now() - path.stat().st_mtime > self.silence
        except FileNotFoundError:
            return True

    def _now(self) -> float:
        """The time of the file system: clocks of machines differ."""
        probe = self.folder / f".{uuid.uuid4().hex}.clock"
        probe.touch()
        now = probe.stat().st_mtime
        probe.unlink(missing_ok=True)
        return now

    def _beat(self, path: Path, token: str, done: threading.Event) -> None:
        while not done.wait(self.heartbeat):
            if _read(path).get("token") != token:
                return  # taken by another process, which thinks that this one is gone
            with contextlib.suppress(OSError):
                os.utime(path)


def _create(path: Path, token: str) -> bool:
    """Create a claim of this process; False if there is one."""
    owner = {"machine": socket.gethostname(), "process": os.getpid(), "token": token}
    try:
        with path.open("x", encoding="utf-8") as file:
            json.dump(owner, file)
    except FileExistsError:
        return False
    return True


def _read(path: Path) -> dict[str, Any]:
    """What a claim says; nothing if it is not there, or was cut off when it was written."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _lives(process: object) -> bool:
    """Whether a process of this machine is there."""
    if not isinstance(process, int):
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
