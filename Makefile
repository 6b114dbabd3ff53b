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
# What is tested with the lowest versions: all that touches other packages, and every density.
LOWEST ?= tests/cli tests/densities tests/inference tests/io tests/learning/test_loop.py \
    tests/tables tests/test_readme.py tests/test_storage.py
PEER := benchmarks/.cirkit/bin/python
BENCH ?= $(filter-out benchmarks/checkouts.py,$(wildcard benchmarks/[a-z]*.py))

.PHONY: help setup demo experiments evidence test test-all test-lowest check check-format check-lint check-types format budgets bench bench-training clean

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

demo: $(STAMP) ## a ring with two components, exact answers, and a page about a real table, in out/
# One thread: the models are small, and threads would wait for each other.
	@OMP_NUM_THREADS=1 $(RUN) -m subtractive demo --output out

experiments: $(STAMP) ## the quick form of every experiment of the paper, in out/ (goes on where it ended)
	@OMP_NUM_THREADS=1 $(RUN) -m studies all --quick --resume --workers $(JOBS) --out out

evidence: $(STAMP) ## write tables, numbers and figures of the pages from studies/records
	@OMP_NUM_THREADS=1 $(RUN) -m studies pages

test: check budgets ## everything that CI runs: check, budgets, tests and doctests
	@echo "test: pytest"
# One thread per worker: the workers already fill the cores.
	@OMP_NUM_THREADS=1 $(RUN) -m pytest -q -n $(JOBS) --dist=worksteal -m "not slow" $(ARGS)

test-all: check budgets ## the same, and the tests that are too slow for every change
	@echo "test-all: pytest"
	@OMP_NUM_THREADS=1 $(RUN) -m pytest -q -n $(JOBS) --dist=worksteal $(ARGS)

test-lowest: ## part of the tests with the lowest versions of pyproject.toml (in .venv-lowest)
	@echo "test-lowest: building .venv-lowest"
	@$(PYTHON) -m venv .venv-lowest
	@.venv-lowest/bin/python scripts/lowest.py parquet > .venv-lowest/lowest.txt
# Where an index has no old torch, that of constraints.txt: the others are the lowest all the same.
	@torch=$$(grep ^torch== .venv-lowest/lowest.txt); \
	.venv-lowest/bin/python -m pip download --quiet --no-deps -d .venv-lowest/wheels "$$torch" \
	    &> .venv-lowest/torch.log || { torch=$$(grep ^torch== constraints.txt); \
	    echo "test-lowest: there is no $$(grep ^torch== .venv-lowest/lowest.txt) here, using $$torch"; }; \
	.venv-lowest/bin/python -m pip install --quiet --find-links .venv-lowest/wheels "$$torch" \
	    $$(grep -v ^torch== .venv-lowest/lowest.txt) pytest pytest-xdist hypothesis mpmath \
	    &> .venv-lowest/pip.log || { tail .venv-lowest/pip.log; exit 1; }
# What old packages say of newer ones is not for us to hear.
	@OMP_NUM_THREADS=1 PYTHONPATH=. .venv-lowest/bin/python -m pytest -q -n $(JOBS) --dist=worksteal \
	    -m "not slow" -W default::DeprecationWarning -W default::FutureWarning $(LOWEST) $(ARGS)

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
	@$(PEER) -m pip install --quiet -c benchmarks/cirkit-constraints.txt libcirkit torch
	@touch $@

clean: ## remove caches and outputs; the environment stays (rm -r .venv removes it)
	@rm -rf out build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find . -path ./$(VENV) -prune -o -name __pycache__ -type d -exec rm -rf {} +
