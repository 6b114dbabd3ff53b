"""What every test and doctest finds: the names of the examples, and how hypothesis searches."""

import os
import signal
import sys
import tempfile

import pytest
import torch
from hypothesis import HealthCheck, settings

import subtractive

# A shell starts what runs in its background with interrupts ignored, and children inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# quimb compiles itself for twenty seconds when it is first imported, and is asked little here.
os.environ.setdefault("NUMBA_DISABLE_JIT", "1")

# A busy machine is slow, not wrong. Check 14 of the scorecard tries a thousand examples of each.
PATIENT = settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("local", PATIENT)
settings.register_profile("ci", PATIENT, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


@pytest.fixture(autouse=True)
def same_numbers_every_time():
    """Seed what a test draws: one that fails must fail again when somebody looks."""
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def names_of_doctests(doctest_namespace):
    """Let the docstrings' examples begin with ``torch``, ``sub`` and a place for files in hand."""
    doctest_namespace.update(os=os, tempfile=tempfile, torch=torch, sub=subtractive)


@pytest.fixture(autouse=True)
def closed_figures():
    """Leave no figures open: pyplot keeps every one, and warns of many."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")
