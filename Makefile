# What one types to work on p2pqueue. Needs python3 (3.11 or later) and make; everything else is set up here.

PYTHON ?= python3
VENV ?= .venv
SEEDS ?= 2000
KILLS ?= 1000
PYTEST_ARGS ?=
BENCH_ARGS ?=
EXTRAS ?= test,bench,dev

BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
CODE := $(wildcard p2pqueue tests docs examples benchmarks)

.PHONY: help demo test check lint docs soak fuzz bench test-versions clean

help:  ## lists these targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 16

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "p2pqueue needs Python 3.11 or later; name one: make PYTHON=python3.12" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "No virtual environment could be made (on Debian: apt-get install python3-venv)" >&2; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[$(EXTRAS)]'
	@touch $@

demo: $(STAMP)  ## shows the whole story on this machine, with a real video
	$(BIN)/p2pqueue demo

test: $(STAMP)  ## runs the tests; PYTEST_ARGS are passed on
	$(BIN)/python -m pytest $(PYTEST_ARGS)

check: lint test  ## runs all that has to hold before a change lands

lint: $(STAMP)  ## runs ruff, mypy and the import rules
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(STAMP)  ## writes the pages of the documentation that are made from the code
	$(BIN)/python docs/generate.py

soak: $(STAMP)  ## runs the simulator with many seeds, and kills many nodes (SEEDS=N KILLS=N)
	$(BIN)/python -m tests.simulation --seeds $(SEEDS)
	P2PQUEUE_TEST_SEEDS=$(SEEDS) P2PQUEUE_TEST_KILLS=$(KILLS) $(BIN)/python -m pytest --timeout 0 -m "soak or not soak" tests/simulation tests/integration/kills tests/integration/clouds tests/net tests/unit/net $(PYTEST_ARGS)

fuzz: $(STAMP)  ## searches for counterexamples for longer than the tests do
	P2PQUEUE_TEST_FUZZ=1 $(BIN)/python -m pytest --timeout 0 tests/property tests/unit/house $(PYTEST_ARGS)

bench: $(STAMP)  ## measures p2pqueue and its peers, writes benchmarks/report.md (BENCH_ARGS=--quick)
	$(BIN)/python -m benchmarks $(BENCH_ARGS)

test-versions: $(STAMP)  ## runs the unit tests on every other Python from 3.11 to 3.13 that is here
	@for version in 3.11 3.12 3.13; do \
	  if command -v python$$version >/dev/null && python$$version -c '' 2>/dev/null; then \
	    $(MAKE) --no-print-directory VENV=$(VENV)-$$version PYTHON=python$$version EXTRAS=test PYTEST_ARGS='tests/unit $(PYTEST_ARGS)' test || exit 1; \
	  else echo "Python $$version is not here"; fi; \
	done

clean:  ## removes what the targets above made
	rm -rf $(VENV) $(VENV)-3.* .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
