# The habits. `make setup` once, then `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: help setup test test-core lint format native bench clean

help:  ## what there is
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

setup: $(BIN)/python  ## install Headway (editable) and everything its tests compare it with
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable ".[dev,golden]"

test: setup lint  ## everything: lint, types, all tests
	$(BIN)/python -m pytest -q

test-core:  ## the pure part, in seconds
	$(BIN)/python -m pytest -q tests/core tests/drive tests/architecture

lint:  ## ruff and mypy, checking only
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/mypy
	$(BIN)/mypy --strict --follow-imports=silent src/headway/core src/headway/drive

format:  ## let ruff mend what it can
	$(BIN)/ruff check --fix src tests benchmarks
	$(BIN)/ruff format src tests benchmarks

native:  ## rebuild the C++ kernels in place, for work on them
	cmake -S . -B build/dev -G Ninja -DPython_EXECUTABLE=$(abspath $(BIN)/python) \
		-DCMAKE_LIBRARY_OUTPUT_DIRECTORY=$(CURDIR)/src/headway/ops/cpu
	cmake --build build/dev

bench:  ## the figures of the README on this machine
	$(BIN)/python benchmarks/offline.py

clean:
	rm -rf build $(VENV)
