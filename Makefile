# The front door: `make` lists what there is. Everything here is a thin call to cmake, ctest or tools/.
SHELL := /bin/bash
ifneq ($(wildcard $(HOME)/.cargo/bin/cargo),)
export PATH := $(HOME)/.cargo/bin:$(PATH)
endif
JOBS ?= $(shell nproc)
CTEST_JOBS ?= 1
FUZZ_SECONDS ?= 60
# For each micro-benchmark, e.g. BENCH_ARGS=--benchmark_min_time=0.05
BENCH_ARGS ?=
# Extra options of the configure step, e.g. CMAKE_ARGS=-DSLUICE_RUST=OFF
CMAKE_ARGS ?=
build = cmake --preset $(1) $(CMAKE_ARGS) >build/$(1).log 2>&1 || { cat build/$(1).log; exit 1; }; cmake --build --preset $(1) -j$(JOBS) $(2)

.PHONY: help setup build demo test bench bench-35b format format-check lint arm64 fuzz clean

help:
	@echo "make demo          a real model answers inside a budget smaller than its file"
	@echo "make test          set up, build and run every test"
	@echo "make build         set up and build build/release/sluice"
	@echo "make bench         micro-benchmarks, then the default model resident and streamed"
	@echo "make bench-35b     forge a 35B-class file, run it here and in llama.cpp (20 GB of disk)"
	@echo "make format        clang-format over the tree"
	@echo "make lint          clang-tidy and the tree's own checks"
	@echo "make arm64         cross build, tests and the program under qemu as several processors"
	@echo "make fuzz          each fuzz target for FUZZ_SECONDS=$(FUZZ_SECONDS)"
	@echo "make clean         remove build/"

setup:
	@tools/setup

build: setup
	@mkdir -p build
	@$(call build,release,--target sluice)

demo: build
	build/release/sluice run -p "What is the capital of France?" --greedy -n 48 --budget 72M --ctx 512 --stats

test:
	@tools/setup --tests
	@mkdir -p build
	@$(call build,release)
	@ctest --test-dir build/release --output-on-failure --no-tests=error -j$(CTEST_JOBS)

bench:
	@tools/setup --tests
	@mkdir -p build
	@$(call build,bench)
	@for b in build/bench/bench/*_bench; do echo "== $$b"; $$b $(BENCH_ARGS) || exit 1; done
	build/bench/sluice bench --kernels
	build/bench/sluice bench --prompt-tokens 128 --decode 64 --repeat 3
	build/bench/sluice bench --budget 72M --prompt-tokens 128 --decode 64 --repeat 3

bench-35b: build
	@bench/bench_35b.py

format:
	@tools/format

format-check:
	@tools/format --check

lint:
	@tools/setup --tests
	@mkdir -p build
	@cmake --preset dev $(CMAKE_ARGS) >build/dev.log 2>&1 || { cat build/dev.log; exit 1; }
	@tools/layers.py
	@tools/tidy.py
	@tools/lint build/dev

arm64:
	@tools/setup --arm64 --no-model
	@mkdir -p build
	@$(call build,release,--target sluice test_kernels)
	@tools/arm64
	@tools/x86_cpus || [ $$? = 77 ]

fuzz:
	@tools/setup --tests
	@mkdir -p build
	@$(call build,fuzz,--target $(notdir $(basename $(wildcard tests/fuzz/fuzz_*.cc))))
	@tools/fuzz build/fuzz $(FUZZ_SECONDS)

clean:
	rm -rf build
