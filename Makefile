# What a person types here. Everything is installed into $(VENV), made on first use; remove it with `make clean`.
# Another Python:  make demo PYTHON=python3.12

VENV ?= .venv
PYTHON ?=
DEMO ?= hybrid-vs-all-full
OUT ?= results/$(DEMO)
ARGS ?=
VLLM ?=

BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# One PyTorch for all tests; where pip can choose, its CPU build, which is a tenth of the CUDA build.
CONSTRAINTS := .ci/constraints.txt

.DEFAULT_GOAL := help
.PHONY: help demo test lint format map accuracy oracle oracle-long clean

help:  ## this list
	@awk -F ':.*##' '/^[a-z-]+:.*##/ { printf "make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(VENV)/.installed  ## set everything up, replay a shipped trace, print the answer
	$(BIN)/hybridkv run $(DEMO) --out $(OUT) $(ARGS)
	@echo "Figures: $(OUT)/figures/   everything else of the run: $(OUT)/"

test: $(VENV)/.installed-dev  ## install what the tests need and run them; ARGS="-k name" goes to pytest
	$(BIN)/python -m pytest $(ARGS)

lint: $(VENV)/.installed-dev  ## style, types, import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.installed-dev  ## put the code into the house style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

map: $(VENV)/.installed-dev  ## write the file map of CONTRIBUTING.md anew
	$(BIN)/python -m tests.repo.file_map --write

accuracy: $(VENV)/.installed-dev  ## simulate public measurements and print the error (needs ../shared/data/measured)
	$(BIN)/python -m benchmarks.accuracy $(ARGS)

oracle: $(VENV)/.installed-dev  ## compare with vLLM's own scheduler; VLLM=x.y.z lists another release's differences
	tests/oracle/build $(VLLM)
	$(BIN)/python tests/oracle/compare_flags.py $(if $(VLLM),--vllm $(VLLM))
	$(BIN)/python tests/oracle/compare_planning.py $(if $(VLLM),--vllm $(VLLM))
	$(BIN)/python tests/oracle/compare_buffers.py $(if $(VLLM),--vllm $(VLLM))
	$(BIN)/python tests/oracle/compare_models.py $(if $(VLLM),--vllm $(VLLM))
	$(BIN)/python tests/oracle/compare.py $(if $(VLLM),--vllm $(VLLM)) $(ARGS)

oracle-long: $(VENV)/.installed-dev  ## random cases until stopped with Ctrl-C; the smallest that differs is saved
	tests/oracle/build
	$(BIN)/python tests/oracle/compare.py --forever $(ARGS)

clean:  ## remove the environments, caches and results
	rm -rf .venv .venv-oracle* dist results .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamps lie inside the environment, so they go when it goes. Only pyproject.toml decides what is installed: the
# packages themselves are used from this folder.
$(VENV)/.made:
	@python=$$(.ci/find-python $(PYTHON)) && echo "Making $(VENV) with $$python" && "$$python" -m venv $(VENV)
	@touch $@

$(VENV)/.installed: pyproject.toml | $(VENV)/.made
	@echo "Installing hybridkv and what it needs into $(VENV) (a minute or two the first time)"
	@$(PIP) --editable .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml $(CONSTRAINTS) | $(VENV)/.made
	@echo "Installing hybridkv and what its tests need into $(VENV) (a minute or two the first time)"
	@$(PIP) --constraint $(CONSTRAINTS) --editable '.[dev]'
	@touch $@ $(VENV)/.installed
