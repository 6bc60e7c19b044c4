# `make plan` and `make test` need only Python 3.11+, git and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Each process has a half of the tests, in order, so that a module's fixtures are made once; the faster one takes from the other.
USUAL := "not more and not deep"
PYTEST := $(BIN)/python -m pytest -n 2 --dist worksteal
# Modules are compiled when they are imported first. pip would compile all of them, of which most are never imported.
INSTALL := $(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check --editable

unexport PYTHONDONTWRITEBYTECODE  # the many processes of the tests compile each module once

.PHONY: environment plan test test-more test-deep notebooks refresh-notebooks test-all test-peers lint types docs clean

environment: $(VENV)/complete

plan: $(VENV)/installed
	$(BIN)/holmes-sim plan topologies/holmes-hybrid-4.yaml

test: $(VENV)/tested
	$(PYTEST) -m $(USUAL)

test-more: $(VENV)/tested
	$(PYTEST) -m "more and not deep" notebooks tests

test-deep: $(VENV)/tested
	$(PYTEST) -m deep

notebooks: $(VENV)/tested
	$(PYTEST) notebooks

refresh-notebooks: $(VENV)/tested
	$(BIN)/python notebooks/refresh.py

# Asserts stay as they are written: each process would take ten seconds to rewrite them. What fails runs again, to show its values.
test-all: $(VENV)/tested
	$(PYTEST) -m $(USUAL) --assert=plain notebooks tests || ($(BIN)/python -m pytest -m $(USUAL) --last-failed notebooks tests; exit 1)

test-peers: $(VENV)/tested
	$(BIN)/python -m tests.peers

lint: $(VENV)/developed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/developed
	$(BIN)/mypy

docs: $(VENV)/documented
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "holmes-sim needs Python 3.11 or newer; say which with make PYTHON=..."; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: $(BIN)/python pyproject.toml
	$(INSTALL) .
	@touch $@

$(VENV)/tested: $(VENV)/installed
	$(INSTALL) '.[test]'
	@touch $@

$(VENV)/developed: $(VENV)/installed
	$(INSTALL) '.[dev]'
	@touch $@

$(VENV)/documented: $(VENV)/installed
	$(INSTALL) '.[docs]'
	@touch $@

$(VENV)/complete: $(BIN)/python pyproject.toml
	$(INSTALL) '.[dev,docs]'
	@touch $(VENV)/installed $(VENV)/tested $(VENV)/developed $(VENV)/documented $@

clean:
	rm -rf $(VENV) build/site .venv-peers .pytest_cache .mypy_cache .ruff_cache .hypothesis
