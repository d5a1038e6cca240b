# Development shortcuts. `make native PYTHON=path/to/python` builds the kernels in place.
PYTHON ?= python3
BUILD ?= build/dev
JOBS ?= 2

.PHONY: native

native:
	cmake -S . -B $(BUILD) -G Ninja -DPython_EXECUTABLE=$(PYTHON) \
		-DCMAKE_LIBRARY_OUTPUT_DIRECTORY=$(CURDIR)/src/headway/ops/cpu
	cmake --build $(BUILD) -j $(JOBS)
