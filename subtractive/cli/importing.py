"""Modules that take a second to import, and Ctrl-C meanwhile."""

from __future__ import annotations

import gc
import os
import signal
import threading
from importlib import import_module
from types import FrameType, ModuleType


def import_or_end(name: str) -> ModuleType:
    """Import a module; Ctrl-C ends the process at once, with exit code 130.

    As an exception it could be lost: modules that are written in C and import others may drop
    it, and go on with half of a module. Nothing was begun yet that would have to be ended.
    """
    # Thousands of objects are made that stay until the end: looking for garbage finds none.
    gc.disable()
    try:
        return _import_or_end(name)
    finally:
        gc.freeze()
        gc.enable()


def _import_or_end(name: str) -> ModuleType:
    is_usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not is_usual or threading.current_thread() is not threading.main_thread():
        return import_module(name)
    signal.signal(signal.SIGINT, _end)
    try:
        return import_module(name)
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(number: int, frame: FrameType | None) -> None:
    os.write(2, b"subtractive: interrupted: nothing was written\n")
    os._exit(130)
