# The habits. `make setup` once, then `make test`.
PYTHON ?= python3
VENV ?= .venv
CLIENTS_VENV ?= .venv-clients
BIN := $(VENV)/bin

.PHONY: help setup test test-core lint format native bench clients load soak clean

help:  ## what there is
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/'

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

setup: $(BIN)/python  ## install Headway (editable) and everything its tests compare it with
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable ".[dev,golden]"

# Two halves at a time: servers and clients, which mostly wait for each other, and all the rest. The
# default model is fetched before, or both would.
SERVING := tests/server tests/cli tests/clients tests/bench
test: setup lint  ## everything: lint, types, all tests
	@mkdir -p build
	$(BIN)/python -c "from headway.model.source import resolve; resolve(None)"
	@$(BIN)/python -m pytest -q $(SERVING) > build/test-serving.log 2>&1 & serving=$$!; \
	trap 'kill $$serving' INT TERM; \
	$(BIN)/python -m pytest -q $(SERVING:%=--ignore=%); rest=$$?; \
	wait $$serving; served=$$?; cat build/test-serving.log; exit $$((rest | served))

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

ISAS ?= all
native:  ## rebuild the C++ kernels in place, for work on them; ISAS=avx512_vnni builds fewer, sooner
	cmake -S . -B build/dev -G Ninja -DHEADWAY_ISAS="$(ISAS)" -DPython_EXECUTABLE=$(abspath $(BIN)/python) \
		-DCMAKE_LIBRARY_OUTPUT_DIRECTORY=$(CURDIR)/src/headway/ops/cpu
	cmake --build build/dev

MODELS ?= build/models
bench:  ## the figures of the README on this machine; docs/benchmarks.md has the whole comparison
	$(BIN)/python -m benchmarks.models $(MODELS) --models smollm2
	$(BIN)/python -m benchmarks.compare $(MODELS) --models smollm2 --which w1,w2 --classes bf16,int8 \
		--rounds 3 --transformers $(BIN)/python --results build/bench.jsonl

# An environment of its own: these packages bring uvloop and httptools, which change the server.
clients:  ## other people's clients against a real server: litellm, langchain, lm-eval, guidellm, npm
	$(PYTHON) -m venv $(CLIENTS_VENV)
	$(CLIENTS_VENV)/bin/python -m pip install --quiet --editable ".[dev,golden,clients]"
	$(CLIENTS_VENV)/bin/python -m pytest -q tests/clients
	$(CLIENTS_VENV)/bin/python -m pytest -q tests/clients/others

load:  ## 500 streams, kills and garbage against a real server, some minutes
	$(BIN)/python -m benchmarks.load.streams
	$(BIN)/python -m benchmarks.load.kill
	$(BIN)/python -m benchmarks.load.fuzz

soak:  ## the same load for half an hour
	$(BIN)/python -m benchmarks.load.streams --minutes 30

clean:
	rm -rf build $(VENV) $(CLIENTS_VENV)
