# Every target sets itself up: a .venv, once, from pyproject.toml and constraints.txt.
PYTHON ?= python3
BIN = .venv/bin
# Whether a Python can be used: it is new enough and has pip.
USABLE = import sys, pip; sys.exit(sys.version_info < (3, 11))
SHUFFLE_REWARDS ?=
EXAMPLES ?=
# Tests run in a few processes, one more than there are cores, since many tests wait for a disk or a
# server; the tests of one file stay together, since they share servers.
PROCESSES ?= $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
PARALLEL = -n $(PROCESSES) --maxprocesses 4 --dist loadfile --no-loadscope-reorder

.PHONY: help demo demo-arms examples loop-curve test test-ci test-all test-frameworks bench-instrumentation check bench bench-ingest bench-ask bench-derive bench-lag bench-transitions bench-policy screenshots bench-page bench-loop clean

help:  ## Say what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

demo: .venv/ready  ## An unchanged agent learns from its own traces, before and after
	$(BIN)/python examples/support_desk/demo.py $(if $(SHUFFLE_REWARDS),--shuffle-rewards $(SHUFFLE_REWARDS))

demo-arms: .venv/ready  ## Prompts that learn: regret falls in five rounds, a poisoned one is refused
	$(BIN)/python examples/arms/demo_arms.py

examples: .venv/ready  ## Four tasks of the field: before, after and a shuffled control, with intervals
	$(BIN)/python examples/run.py $(EXAMPLES)

loop-curve: .venv/ready  ## An example in lightning-learn loop for three rounds; EXAMPLES=room_booking
	$(BIN)/python examples/loop.py $(or $(EXAMPLES),room_booking)

test: test-quick test-docs  ## The tests

test-ci: test-thorough test-docs  ## The tests and the slow proofs: what .ci/run runs

.PHONY: test-quick test-thorough test-docs
test-quick: .venv/ready
	$(BIN)/pytest $(PARALLEL) --hypothesis-profile=quick -m "not slow and not frameworks"

test-thorough: .venv/ready
	$(BIN)/pytest $(PARALLEL)

test-docs: .venv/ready  ## The code in README and docs
	$(BIN)/pytest --markdown-docs README.md docs

test-all:  ## The same, each framework, and the short form of bench-weights
	$(MAKE) test-ci
	$(MAKE) test-frameworks
	$(MAKE) bench-weights SHORT=1

check: .venv/ready  ## Style, types, imports, dependencies, size
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/deptry instrumentation collector learner
	$(BIN)/python tests/code_size.py

test-frameworks: .venv/ready  ## Unchanged agents in real frameworks, each in an environment of its own
	$(BIN)/pytest -m frameworks tests/instrumentation

bench-instrumentation: .venv/ready  ## What tracing costs an agent, beside other tracers
	$(BIN)/python tests/bench/instrumentation.py

bench: .venv/ready  ## The benchmarks, as tables
	$(BIN)/python tests/bench/ingest.py
	$(BIN)/python tests/bench/ask.py

bench-ingest: .venv/ready  ## What receiving and storing costs
	$(BIN)/python tests/bench/ingest.py

bench-ask: .venv/ready  ## What asking costs over 10 million spans
	$(BIN)/python tests/bench/ask.py

.PHONY: bench-pages
bench-pages: .venv/ready  ## What the pages cost over a million model calls
	$(BIN)/python tests/bench/ask_pages.py

bench-derive: .venv/ready  ## What deriving costs, beside an older version and by size
	$(BIN)/python tests/bench/derive.py

.PHONY: bench-beside
bench-beside: .venv/ready  ## Each line that 0.1.0 had, beside 0.1.0 by turns; OLD=ref
	$(BIN)/python tests/bench/beside.py $(if $(OLD),--old $(OLD))

bench-lag: .venv/ready  ## How soon rows can be asked for under sustained load
	$(BIN)/python tests/bench/lag.py

.PHONY: bench-workers
bench-workers: .venv/ready  ## How much sooner worker processes derive a store
	$(BIN)/python tests/bench/workers.py

.PHONY: bench-late
bench-late: .venv/ready  ## What late spans cost in a trace of 200,000 and a conversation of 5,000 turns
	$(BIN)/python tests/bench/late.py

.PHONY: soak
soak: .venv/ready  ## Half an hour of load: lag, memory and descriptors stay flat
	$(BIN)/python tests/bench/soak.py

.PHONY: kills
kills: .venv/ready  ## Kill the ingester over and over under load with workers and backups; KILLS=100
	$(BIN)/python tests/bench/kills.py $(if $(KILLS),--kills $(KILLS))

bench-transitions: .venv/ready  ## What transitions cost, beside agentlightning and up to 20 million spans
	$(BIN)/python tests/bench/transitions.py

bench-policy: .venv/ready  ## Policies beside azure-agents-learning-sdk, and how often the gate errs; SEEDS=60
	OMP_NUM_THREADS=1 $(BIN)/python tests/bench/policy_peer.py
	OMP_NUM_THREADS=1 $(BIN)/python tests/bench/policy.py $(if $(SEEDS),--seeds $(SEEDS))

.PHONY: bench-paired
bench-paired: .venv/ready  ## How often a gain passes the gate that judges by running, and no gain does
	OMP_NUM_THREADS=1 $(BIN)/python tests/bench/paired.py

.PHONY: bench-weights
bench-weights: .venv/ready  ## Every algorithm for weights beside its base and two controls; SHORT=1 for less
	OMP_NUM_THREADS=1 $(BIN)/python tests/bench/weights.py $(if $(SEEDS),--seeds $(SEEDS)) $(if $(SHORT),--short)

.PHONY: bench-gpu
bench-gpu: .venv/ready  ## What models of real size cost on a GPU, and whether it learns what a CPU learns
	$(BIN)/python tests/bench/weights_gpu.py

bench-page: .venv/ready  ## What reading a page each second does to acknowledgements
	$(BIN)/python tests/bench/page.py

bench-loop: .venv/ready  ## Running an agent on tasks beside agentlightning and Inspect AI, and after a kill
	$(BIN)/python tests/bench/loop.py

screenshots: .venv/ready  ## Pictures of the page for the documentation, over the store of `make demo`
	$(BIN)/python tests/support/screenshots.py

clean:  ## Remove what was installed and made here
	rm -rf .venv .demo .demo-arms .examples .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis

# An environment of an older Python, or one that could not be finished, would fail here for ever.
# pip compiles nothing, which takes it a minute: Python compiles what is imported.
.venv/ready: pyproject.toml constraints.txt
	@$(BIN)/python -c '$(USABLE)' 2>/dev/null || { \
	  $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	    echo "Python 3.11 or newer is needed, and '$(PYTHON)' is not: give yours, as in: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }; \
	  $(PYTHON) -m venv --clear .venv; }
	@echo "Installing what is needed into .venv, once. This takes some minutes and more than 2 GB of disk."
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e '.[dev]'
	@touch $@
