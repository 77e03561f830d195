# `make serve` and `make test` are all that a newcomer needs; `make help` lists the rest.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# Empty installs the built wheel instead of linking src: what CI tests.
EDITABLE ?= -e
# .venv keeps the Python that made it, until another one is asked for: make PYTHON=python3.12 test
MADE_WITH := $(shell sed -nE 's/^version(_info)? = ([0-9]+\.[0-9]+).*/\2/p' $(VENV)/pyvenv.cfg 2>/dev/null)
ASKED := $(if $(filter file,$(origin PYTHON)),$(MADE_WITH))
VERSION := $(or $(ASKED),$(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])'))
# The locks hold for this Python and platform; elsewhere the ranges of pyproject.toml do.
LOCKED := $(filter 3.11-Linux-x86_64,$(VERSION)-$(shell uname -s)-$(shell uname -m))
# By content: a checkout that only touches files installs nothing, so works without a network.
KEY := $(VERSION)-$(shell cat pyproject.toml requirements.lock requirements-dev.lock | cksum | cut -d ' ' -f 1)
SERVED := $(VENV)/.served-$(KEY)
TESTED := $(VENV)/.tested-$(KEY)
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help install serve test lint types fmt docs lock bench ceiling accuracy exactness fairness memory corpus chaos clean

help:  ## List the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

# Debian's python3 has no ensurepip without python3-venv; its own pip can stand in.
define make_venv
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "pagemill needs Python 3.11 or newer; name one: make PYTHON=python3.12"; exit 1; }
	$(if $(filter $(VERSION),$(MADE_WITH)),,rm -rf $(VENV) && { $(PYTHON) -m venv $(VENV) || { \
		$(PYTHON) -m venv --clear --without-pip $(VENV) && \
		$(PYTHON) -m pip --python $(BIN)/python install --quiet pip; } || { rm -rf $(VENV); exit 1; }; })
endef

$(SERVED):
	@echo "Installing pagemill into $(VENV) (once; a few minutes)..."
	$(make_venv)
	$(if $(LOCKED),$(PIP) install --require-hashes -r requirements.lock && $(PIP) install --no-deps $(EDITABLE) .,$(PIP) install $(EDITABLE) .)
	@rm -f $(VENV)/.served-* && touch $@

$(TESTED):
	@echo "Installing pagemill and its tests into $(VENV) (once; a few minutes)..."
	$(make_venv)
	$(if $(LOCKED),$(PIP) install --require-hashes -r requirements-dev.lock && $(PIP) install --no-deps $(EDITABLE) .,$(PIP) install $(EDITABLE) '.[dev]')
	@rm -f $(VENV)/.served-* $(VENV)/.tested-* && touch $@ $(SERVED)

install: $(SERVED)  ## Create .venv and install the server

serve: $(SERVED)  ## Run the server on loopback (ARGS="--port 9000")
	@exec $(BIN)/pagemill serve $(ARGS)

test: $(TESTED)  ## Run the tests
	@$(BIN)/python -m pytest $(ARGS)

lint: $(TESTED)  ## Check style, import contracts and budgets
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/python scripts/check_budgets.py

types: $(TESTED)  ## Check types
	$(BIN)/mypy

fmt: $(TESTED)  ## Format and mend what can be mended
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: $(TESTED)  ## Generate the reference pages
	$(BIN)/python scripts/generate_docs.py

lock: $(TESTED)  ## Make the lock files anew from pyproject.toml
	$(BIN)/python scripts/lock.py

bench: $(TESTED)  ## Throughput and latency beside the peers
	scripts/bench_peers.sh $(ARGS)

ceiling: $(TESTED)  ## How near to the bare models is the server
	$(BIN)/python scripts/ceiling.py $(ARGS)

accuracy: $(TESTED)  ## Word F1 and character accuracy beside RapidOCR
	$(BIN)/python scripts/accuracy.py $(ARGS)

exactness: $(TESTED)  ## Same bytes alone, in a crowd, and while workers are killed
	$(BIN)/python scripts/exactness.py $(ARGS)

fairness: $(TESTED)  ## A receipt's latency beside a long PDF
	$(BIN)/python scripts/fairness.py $(ARGS)

memory: $(TESTED)  ## Memory of front and workers
	$(BIN)/python scripts/memory.py $(ARGS)

corpus: $(TESTED)  ## Every file of the corpus gets what its manifest says
	$(BIN)/python scripts/corpus.py $(ARGS)

chaos: $(TESTED)  ## Kill, hang and corrupt real workers
	$(BIN)/python -m pytest -m chaos $(ARGS)

clean:  ## Remove .venv and caches
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
