SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
STAMP := $(VENV)/.setup-done
LOG := $(VENV)/setup.log
JOBS ?= 2
# One thread per worker: the workers already fill the cores. And bytecode is kept, whatever the shell
# says: workers and the many processes of the tests would otherwise compile everything again.
PYTEST := OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(RUN) -m pytest
# What is tested with the lowest versions: all that touches other packages, and every density.
LOWEST ?= tests/cli tests/densities tests/inference tests/io tests/learning/test_loop.py \
    tests/tables tests/test_readme.py tests/test_storage.py
PEER := benchmarks/.cirkit/bin/python
BENCH ?= $(filter-out benchmarks/checkouts.py,$(wildcard benchmarks/[a-z]*.py))

.PHONY: help setup demo docs dist experiments evidence test test-all run-tests test-lowest test-engines scorecard check check-format check-lint check-types format budgets bench bench-training clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' Makefile

setup: $(STAMP) ## build .venv with the versions of constraints.txt (PYTHON=python3.12 to choose)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	    echo "setup needs Python 3.11 or newer, but '$(PYTHON)' is" \
	        "$$($(PYTHON) --version 2>/dev/null || echo not there)." \
	        "Name another one: make setup PYTHON=python3.12" >&2; exit 1; }
	@echo "setup: building $(VENV) with $$($(PYTHON) --version); the first time takes a few minutes"
	@$(PYTHON) -m venv $(VENV)
# setuptools first and no isolated build: the build, too, uses the versions of constraints.txt.
	@{ $(RUN) -m pip install -c constraints.txt setuptools && \
	   $(RUN) -m pip install -c constraints.txt --no-build-isolation -e '.[dev]'; } \
	    &> $(LOG) || { tail -n 20 $(LOG); echo "setup: pip failed, see $(LOG)"; exit 1; } >&2
	@touch $@
	@echo "setup: done"

demo: $(STAMP) ## a ring, a table, a question, an answer: pictures and a page in out/
# One thread: the models are small, and threads would wait for each other.
	@OMP_NUM_THREADS=1 $(RUN) -m subtractive demo --output out

docs: $(STAMP) ## the documentation site, its gallery executed and its links checked, in out/site
	@OMP_NUM_THREADS=1 $(RUN) -m sphinx -q -W --keep-going -j auto docs out/site
	@$(RUN) scripts/check_links.py out/site
	@echo "docs: open out/site/index.html"

dist: $(STAMP) ## the wheel and the source archive, checked, in dist/
	@$(RUN) -m pip install --quiet -c constraints.txt 'build' 'twine'
	@rm -rf dist && $(RUN) -m build --no-isolation > $(VENV)/dist.log || { tail $(VENV)/dist.log; exit 1; }
	@$(RUN) -m twine check --strict dist/*
	@scripts/check_sdist.sh dist/*.tar.gz $(RUN)

experiments: $(STAMP) ## the quick form of every experiment of the paper, in out/ (goes on where it ended)
	@OMP_NUM_THREADS=1 $(RUN) -m studies all --quick --resume --workers $(JOBS) --out out

evidence: $(STAMP) ## write tables, numbers and figures of the pages from studies/records
	@OMP_NUM_THREADS=1 $(RUN) -m studies pages

# Two jobs: tests begin while the type checker, which has one thread, is at work.
test: $(STAMP) ## everything that CI runs: check, budgets, tests and doctests
	@$(MAKE) --no-print-directory -j 2 check budgets run-tests MARK='-m "not slow"'

test-all: $(STAMP) ## the same, and the tests that are too slow for every change
	@$(MAKE) --no-print-directory -j 2 check budgets run-tests

run-tests: $(STAMP)
	@echo "test: pytest"
	@$(PYTEST) -q -n $(JOBS) --dist=worksteal $(MARK) $(ARGS)

test-lowest: ## part of the tests with the lowest versions of pyproject.toml (in .venv-lowest)
	@echo "test-lowest: building .venv-lowest"
	@$(PYTHON) -m venv .venv-lowest
	@.venv-lowest/bin/python scripts/lowest.py parquet > .venv-lowest/lowest.txt
# LOWEST_TORCH=torch==2.13.0 tests another torch: wheels of old ones may bring CUDA along.
	@torch="$(or $(LOWEST_TORCH),$$(grep ^torch== .venv-lowest/lowest.txt))"; \
	echo "test-lowest: $$torch, and the lowest versions of all others"; \
	.venv-lowest/bin/python -m pip install --quiet "$$torch" \
	    $$(grep -v ^torch== .venv-lowest/lowest.txt) pytest pytest-xdist hypothesis mpmath \
	    &> .venv-lowest/pip.log || { tail .venv-lowest/pip.log; exit 1; }
# What old packages say of newer ones is not for us to hear.
	@OMP_NUM_THREADS=1 PYTHONPATH=. .venv-lowest/bin/python -m pytest -q -n $(JOBS) --dist=worksteal \
	    -m "not slow" -W default::DeprecationWarning -W default::FutureWarning $(LOWEST) $(ARGS)

scorecard: $(STAMP) ## what the library promises, measured; writes docs/scorecard.md (ARGS="--only 1,22")
	@OMP_NUM_THREADS=1 $(RUN) -m scorecard $(ARGS)

# Spark and Ray are large, and nothing of ours needs them.
test-engines: $(STAMP) ## the recipes of docs/large-data.md on Spark, Dask and Ray (Spark needs Java)
	@[[ -d .engines ]] || $(RUN) -m pip install --quiet --target .engines -c constraints.txt pyspark ray
	@PYTHONPATH=$(CURDIR)/.engines OMP_NUM_THREADS=1 $(RUN) -m pytest -q tests/test_large_data.py $(ARGS)

check: check-format check-lint check-types ## format, lint and types, changing nothing

check-format: $(STAMP)
	@echo "check: ruff format"
	@$(RUN) -m ruff format --check .

check-lint: $(STAMP)
	@echo "check: ruff check"
	@$(RUN) -m ruff check .

check-types: $(STAMP)
	@echo "check: mypy"
	@$(RUN) -m mypy --no-error-summary

format: $(STAMP) ## repair what ruff can repair
	@$(RUN) -m ruff check --quiet --fix-only .
	@$(RUN) -m ruff format .

budgets: $(STAMP) ## print the style budgets
	@$(RUN) scripts/budgets.py

bench: $(STAMP) ## run every benchmark (BENCH=benchmarks/one.py for one)
	@[[ -n "$(strip $(BENCH))" ]] || echo "bench: there is nothing in benchmarks/ yet"
	@for file in $(BENCH); do \
	    echo "bench: $$file"; \
	    $(RUN) -m "benchmarks.$$(basename "$$file" .py)"; \
	done

bench-training: $(STAMP) $(PEER) ## the training benchmark against libcirkit (ARGS=--quick for a minute)
	@OMP_NUM_THREADS=1 $(RUN) -m benchmarks.training --cirkit-python $(PEER) $(ARGS)

# libcirkit pins older versions of numpy and scipy than ours.
$(PEER): benchmarks/cirkit-constraints.txt
	@echo "bench-training: building benchmarks/.cirkit"
	@$(PYTHON) -m venv benchmarks/.cirkit
	@$(PEER) -m pip install --quiet -c benchmarks/cirkit-constraints.txt libcirkit torch \
	    safetensors lazy-loader
	@touch $@

clean: ## remove caches and outputs; the environment stays (rm -r .venv removes it)
	@rm -rf out build dist docs/gallery docs/reference *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find . -path ./$(VENV) -prune -o -name __pycache__ -type d -exec rm -rf {} +
