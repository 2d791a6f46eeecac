# The two commands that matter are `make verify` and `make test`; each installs what it needs into .venv first.

PYTHON ?= python3
JOBS ?= 2
BASE ?= main
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
CODE := verifier kernels tests $(wildcard benchmarks)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

verify: $(STAMP)  ## Compile every kernel of kernels/ and prove its ordering obligations (no GPU needed)
	@$(BIN)/verifier verify --profile isa --strict --jobs $(JOBS)

diff: $(STAMP)  ## Say what changed in the generated code since BASE (a revision, default main)
	@$(BIN)/verifier diff $(BASE).. --jobs $(JOBS) $(DIFF_ARGS)

nightly: $(STAMP)  ## Run the matrix of nightly.toml into nightly/ and compare it with the last good run
	@$(BIN)/verifier nightly --out nightly $(NIGHTLY_ARGS)

test: $(STAMP)  ## Run the test suite
	@$(BIN)/python -m pytest -n $(JOBS) $(PYTEST_ARGS)

check: $(STAMP)  ## Check format, lint, types, import layers and workflow files
	@$(BIN)/ruff format --check $(CODE)
	@$(BIN)/ruff check $(CODE)
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/check-jsonschema --quiet --builtin-schema vendor.github-workflows .github/workflows/*.yml
	@$(BIN)/zizmor --offline --quiet --persona=pedantic .github/workflows

fix: $(STAMP)  ## Format the code and apply the fixes that ruff is sure of
	@$(BIN)/ruff check --fix $(CODE)
	@$(BIN)/ruff format $(CODE)

schema: $(STAMP)  ## Write the JSON Schemas of the reports again
	@$(BIN)/python -m verifier.report.schema
	@$(BIN)/python -m verifier.diff.schema

docs: $(STAMP)  ## Write docs/rules.md and the samples of README and docs again
	@$(BIN)/python -m verifier.rules.reference docs/rules.md
	@$(BIN)/python -m tests.contract.samples

lock: $(STAMP)  ## Resolve requirements.lock again (needs the program `uv`)
	@{ echo "# Exact versions and hashes of everything \`make\` installs, for Python 3.10 and newer. Written by \`make lock\`."; \
	   uv pip compile pyproject.toml --extra compile --extra dev --extra html --universal --python-version 3.10 \
	     --generate-hashes --no-emit-index-url --no-header --quiet; } > requirements.lock.new
	@mv requirements.lock.new requirements.lock

setup: $(STAMP)  ## Only create .venv and install everything into it

$(BIN)/python:
	@command -v $(PYTHON) >/dev/null || { echo "error: $(PYTHON) not found; install Python 3.10 or newer, or say make PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "error: $(PYTHON) is $$($(PYTHON) -V 2>&1); Python 3.10 or newer is needed (make PYTHON=python3.12)" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "error: $(PYTHON) cannot create virtual environments; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@echo "creating $(VENV)" >&2
	@$(PYTHON) -m venv $(VENV)

$(STAMP): pyproject.toml requirements.lock | $(BIN)/python
	@echo "installing into $(VENV) (the first time downloads the compiler, about 1 GB)" >&2
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

.PHONY: help verify diff nightly test check fix schema docs lock setup
