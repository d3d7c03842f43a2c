# Each target works alone on a fresh clone with nothing but Python (3.10 or newer) and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
PIP := $(BIN)/python -m pip --disable-pip-version-check
# Two processes, each with half of the tests, so that what a file's tests share is made once; then the one that has
# finished takes from the other.
TWO := -n 2 --dist worksteal
# One thread per process: with more, a busy machine gets ten times slower.
export OMP_NUM_THREADS ?= 1
export MKL_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1

.DEFAULT_GOAL := help
.PHONY: help install install-mpi try-mpi install-chromium try-chromium demo test test-all test-pythons coverage check format bench clean

help:  ## show this help
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  \1\t\2/' | expand -t 18

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "swiftfl needs Python 3.10 or newer")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV) (a minute or two the first time)"
	$(PIP) install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

install: $(INSTALLED)  ## make .venv and install swiftfl into it

install-mpi: $(INSTALLED)  ## also MPI (mpi4py and Open MPI, from PyPI)
	$(PIP) install --quiet --constraint constraints.txt --editable '.[mpi]'

try-mpi: $(INSTALLED)
	@$(BIN)/python -c 'import mpi4py' 2>/dev/null || $(MAKE) --silent install-mpi 2>/dev/null || \
	  echo "MPI cannot be installed here: its tests are skipped"

install-chromium:  ## the browser that opens reports in a test (Debian, Ubuntu; needs root)
	apt-get install -y --no-install-recommends chromium || \
	  { apt-get update && apt-get install -y --no-install-recommends chromium; }

try-chromium: $(INSTALLED)
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || \
	  timeout 300 $(MAKE) --silent install-chromium >/dev/null 2>&1 || \
	  echo "Chromium cannot be installed here: its test is skipped"

demo: $(INSTALLED)  ## SWIFT against D-SGD with one slow client, in under a minute
	$(BIN)/swiftfl demo

test: $(INSTALLED) try-mpi  ## the fast tests
	$(BIN)/python -m pytest $(TWO) -m "not slow"

test-all: $(INSTALLED) try-mpi try-chromium  ## all tests, the slow ones too, with their coverage
	rm -rf build/coverage && mkdir -p build/coverage
	$(BIN)/python -m pytest $(TWO) --cov
	@echo "lines that no test runs: make coverage"

test-pythons:  ## a quick part of the tests with every Python from 3.10 to 3.13 that is here
	$(PYTHON) tools/test_pythons.py

coverage:  ## which lines of src the last `make test-all` did not run
	@test -d build/coverage || { echo "nothing measured yet: run make test-all first"; exit 1; }
	$(BIN)/coverage report --show-missing

check: $(INSTALLED)  ## ruff, strict mypy, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: $(INSTALLED)  ## let ruff rewrite what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(INSTALLED)  ## the benchmarks, each printing ratios measured in one run
	@for program in benchmarks/[a-z]*.py; do echo "== $$program"; $(BIN)/python $$program || exit 1; done

clean:  ## remove .venv and caches
	rm -rf $(VENV) build .import_linter_cache .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
