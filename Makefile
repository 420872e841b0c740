# Two commands do everything on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SCENARIO ?= scenarios/smoke.yaml

.PHONY: help setup demo story fidelity test test-slow test-swarm test-theory test-fleet test-soak test-browser test-real test-gpu lint types contracts bench bench-quick clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

$(READY): requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -e .
	touch $@

setup: $(READY)  ## the environment, from the lock file

demo: $(READY)  ## the main job on the embedded service: a run, a verdict, a report
	$(BIN)/truetail run scenarios/smoke.yaml

story: $(READY)  ## the same service at the same rate: fixed, Poisson and 4-at-once arrivals, one table
	$(BIN)/python benchmarks/story.py

fidelity: $(READY)  ## production stand-in recorded, then replayed fixed, Poisson, exact and modelled (about half an hour)
	$(BIN)/python benchmarks/fidelity.py

test: $(READY)  ## the tests, without those behind a marker of their own target
	$(BIN)/python -m pytest -m "not slow and not theory and not fleet and not browser and not real and not soak and not gpu"

test-slow: $(READY)  ## the longer tests of every room
	$(BIN)/python -m pytest -m slow --timeout 1800

test-swarm: $(READY)  ## only the tests that start a real fleet
	$(BIN)/python -m pytest -m "swarm and not slow"

test-theory: $(READY)  ## minutes of measuring through the swarm, against queueing theory
	$(BIN)/python -m pytest -m theory --timeout 1800 -s

test-fleet: $(READY)  ## hosts as network namespaces; needs root and iproute2
	$(BIN)/python -m pytest -m fleet --timeout 1800

test-soak: $(READY)  ## half an hour at 500/s: memory of master and workers
	$(BIN)/python -m pytest -m soak --timeout 3600

test-browser: $(READY)  ## pages in headless Chromium
	$(BIN)/python -m pytest -m browser --timeout 600

test-real: $(READY)  ## servers that we did not write, each in its own environment under build/
	for server in triton litserve llama vllm; do tests/real/install_$$server.sh || exit 1; done
	$(BIN)/python -m pytest -m real --timeout 3000

test-gpu: $(READY)  ## on a machine with an NVIDIA GPU
	$(BIN)/python -m pytest -m gpu --timeout 600

lint: $(READY)  ## style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)  ## mypy
	$(BIN)/mypy

contracts: $(READY)  ## who may import whom
	$(BIN)/lint-imports

bench: $(READY)  ## every benchmark, one after the other
	for file in benchmarks/bench_*.py; do echo "== $$file"; $(BIN)/python $$file || exit 1; done

bench-quick: $(READY)  ## the ratios that a change must not lose, in under three minutes
	$(BIN)/python benchmarks/bench_schedule.py --arrivals 1000000 --repeats 2 && $(BIN)/python benchmarks/bench_fleet.py --seconds 4

clean:  ## run folders and caches (not the environment)
	rm -rf runs build .pytest_cache .mypy_cache .ruff_cache
