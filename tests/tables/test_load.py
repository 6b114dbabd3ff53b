"""Long tables in bounded memory, and many threads on one model."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from frames import BOUNDS, mixed_frame, quick

FRAME = mixed_frame(120)


def test_sixteen_threads_score_as_one_does():
    model = quick(schema=BOUNDS).fit(FRAME)
    expected = model.score_samples(FRAME)
    draws = model.sample(10, random_state=0)
    with ThreadPoolExecutor(16) as pool:
        scores = list(pool.map(lambda _: model.score_samples(FRAME), range(16)))
        samples = list(pool.map(lambda _: model.sample(10, random_state=0), range(16)))
    assert all(np.array_equal(score, expected) for score in scores)
    assert all(sample.equals(draws) for sample in samples)


# Peak memory in MB beyond that of the table itself, once everything has been loaded and warmed up.
PROGRAM = """
import resource, sys
import numpy as np
import subtractive as sub

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

random = np.random.default_rng(0)
model = sub.SubtractiveMixture(4, max_epochs=1, structure=sys.argv[1], random_state=0)
model.fit(random.normal(size=(500, 20)))
num_rows = int(sys.argv[2])
table = random.normal(size=(num_rows, 20))
before = peak()
scores = model.score_samples(table)
assert np.isfinite(scores).all() and len(scores) == num_rows
print(peak() - before)
"""


@pytest.mark.slow
def test_a_million_rows_of_twenty_columns_are_scored_in_bounded_memory():
    command = [sys.executable, "-c", PROGRAM, "binary", "1000000"]
    output = subprocess.run(command, capture_output=True, check=True, text=True).stdout
    # The messages of a block of rows, 2**24 numbers, and a few copies of 2**16 rows.
    assert float(output) < 400
