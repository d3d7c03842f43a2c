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
.PHONY: help install install-mpi try-mpi install-federation try-federation federation-demo install-notebook try-notebook install-trackers try-trackers install-integrations try-integrations install-dashboard try-dashboard install-docs try-docs docs install-chromium try-chromium demo test test-all test-pythons coverage check format bench clean

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

install-trackers: $(INSTALLED)  ## also TensorBoard, MLflow, Weights & Biases
	$(PIP) install --quiet --constraint constraints.txt --editable '.[tensorboard,mlflow,wandb]'

try-trackers: $(INSTALLED)
	@$(BIN)/python -c 'import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, ("tensorboard", "mlflow", "wandb"))))' || \
	  $(MAKE) --silent install-trackers 2>/dev/null || echo "trackers cannot be installed here: their tests are skipped"

install-integrations: $(INSTALLED)  ## also Lightning, Hugging Face's transformers, ONNX, and Opacus
	$(PIP) install --quiet --constraint constraints.txt --editable '.[lightning,transformers,onnx,privacy]'

try-integrations: $(INSTALLED)
	@$(BIN)/python -c 'import importlib.util as u, sys; sys.exit(not all(map(u.find_spec, ("lightning", "transformers", "accelerate", "onnxscript", "opacus"))))' || \
	  $(MAKE) --silent install-integrations 2>/dev/null || echo "integrations cannot be installed here: their tests are skipped"

install-dashboard: $(INSTALLED)  ## also what the dashboard is served with (Starlette and uvicorn)
	$(PIP) install --quiet --constraint constraints.txt --editable '.[dashboard]'

try-dashboard: $(INSTALLED)
	@$(BIN)/python -c 'import starlette, uvicorn' 2>/dev/null || $(MAKE) --silent install-dashboard 2>/dev/null || \
	  echo "the dashboard's server cannot be installed here: its tests are skipped"

install-federation: $(INSTALLED)  ## also zenoh and certificates, for nodes of different organisations
	$(PIP) install --quiet --constraint constraints.txt --editable '.[federation]'

try-federation: $(INSTALLED)
	@$(BIN)/python -c 'import zenoh, cryptography' 2>/dev/null || $(MAKE) --silent install-federation 2>/dev/null || \
	  echo "zenoh cannot be installed here: the tests of federations are skipped"

federation-demo: try-federation  ## five organisations on one machine: one is killed, one comes late, one is refused
	$(BIN)/python examples/federation/demo.py

install-notebook: $(INSTALLED)  ## also a Jupyter kernel, for the tests of notebooks
	$(PIP) install --quiet --constraint constraints.txt --editable '.[notebook]'

try-notebook: $(INSTALLED)
	@$(BIN)/python -c 'import nbclient, ipykernel' 2>/dev/null || $(MAKE) --silent install-notebook 2>/dev/null || \
	  echo "a Jupyter kernel cannot be installed here: its tests are skipped"

install-docs: $(INSTALLED)  ## also Sphinx, with what the documentation needs
	@$(BIN)/python -c 'import sphinx, myst_parser, furo' 2>/dev/null || \
	  $(PIP) install --quiet --constraint constraints.txt --editable '.[docs]'

try-docs: $(INSTALLED)
	@$(MAKE) --silent install-docs 2>/dev/null || echo "Sphinx cannot be installed here: its tests are skipped"

docs: install-docs  ## the documentation as a site (build/site/index.html); warnings and broken links are errors
	$(BIN)/python -m sphinx -b html -W --keep-going -q -c docs . build/site
	@echo "build/site/index.html"

install-chromium:  ## the browser that opens reports in a test (Debian, Ubuntu; needs root)
	apt-get install -y --no-install-recommends chromium || \
	  { apt-get update && apt-get install -y --no-install-recommends chromium; }

try-chromium: $(INSTALLED)
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || \
	  timeout 300 $(MAKE) --silent install-chromium >/dev/null 2>&1 || \
	  echo "Chromium cannot be installed here: its test is skipped"

demo: $(INSTALLED)  ## SWIFT against D-SGD with one slow client, in under a minute
	$(BIN)/swiftfl demo

test: $(INSTALLED) try-mpi try-federation try-notebook try-dashboard  ## the fast tests
	$(BIN)/python -m pytest $(TWO) --once-more -m "not slow"

test-all: $(INSTALLED) try-mpi try-federation try-notebook try-dashboard try-trackers try-integrations try-docs try-chromium  ## all tests, the slow ones too, with their coverage
	rm -rf build/coverage && mkdir -p build/coverage
	$(BIN)/python -m pytest $(TWO) --once-more --cov
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

bench: $(INSTALLED)  ## the benchmarks, each printing ratios measured in one run, and one table of all claims
	$(BIN)/python tools/bench.py $(BENCH)

clean:  ## remove .venv and caches
	rm -rf $(VENV) build .import_linter_cache .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
