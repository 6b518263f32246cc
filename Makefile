# Every command a contributor needs. `make` alone lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all test-large test-readers test-errors test-recovery test-floods test-endurance test-tampering fuzz test-load test-mutants test-coverage test-docs check docs pictures mirrors protos bench lock clean

BIN := .venv/bin
# Hundreds of processes are started by tests: none should compile the source anew.
unexport PYTHONDONTWRITEBYTECODE
# Test processes in parallel: one more than cores, as many of them wait for processes. Each begins with its share, so that
# what a module's tests share is made once.
WORKERS ?= 3
PARALLEL = $(BIN)/pytest -q -n $(WORKERS) --dist worksteal -m "$(1) and not serial"
# Tests marked `serial` measure time: they run alone, afterwards. pytest answers 5 when a marker selects nothing.
SERIAL = $(BIN)/pytest -q -m "$(1) and serial" $(2) $$(grep -rl --include='test_*.py' 'mark\.serial' tests) || [ $$? -eq 5 ]
# Examples of properties that nobody has seen before; without it they are the same every time.
EXPLORING = --hypothesis-profile=exploring

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' Makefile | expand -t 14

setup:  ## build .venv from requirements.lock, and .venv/bin/wardround
	@tools/setup

demo: setup  ## run a whole federation on this machine: four hospitals, a coordinator, an analyst
	@$(BIN)/wardround demo $(ARGS)

test: setup  ## run the tests, without the slow ones
	@$(call PARALLEL,not slow)
	@$(call SERIAL,not slow)

test-all: setup  ## run every test
	@$(call PARALLEL,not large) $(EXPLORING)
	@$(call SERIAL,not large,$(EXPLORING))
	@$(MAKE) --no-print-directory test-large

# Half an hour, 4 GiB of memory and 3 GB of disk; ARGS="-k sqlite" asks one source alone.
test-large: setup  ## ask every source about a patient with twenty million rows, and measure memory
	@$(BIN)/pytest -q -s -m large -o faulthandler_timeout=0 tests/large $(ARGS)

# Ten minutes; ARGS="-k part3" or ARGS="-k csv" runs a part.
test-readers: setup  ## put values that cannot be read at 200 places of every source, and ask whole sites
	@$(BIN)/pytest -q -s -n $(WORKERS) -m "slow or not slow" tests/site_agent/readers $(ARGS)

# Two minutes; prints seeds and figures.
test-errors: setup  ## ask 200 random questions by error, and eleven of them 2,000 times
	@$(BIN)/pytest -q -s -m "slow or not slow" tests/coordinator/errors $(ARGS)

# Ten minutes; prints seeds. ARGS="-k coordinator" or ARGS="-k 203" runs a part.
test-recovery: setup  ## restore every role from every copy of random histories, recover it and go on asking
	@$(BIN)/pytest -q -s -m "slow or not slow" tests/simulation/test_coordinator_recovery.py \
	    tests/simulation/test_site_recovery.py tests/simulation/test_recovery_histories.py $(ARGS)

# Two minutes; prints what a victim's calls take meanwhile. ARGS="-k silent" runs a part.
test-floods: setup  ## attack a coordinator that may have 1,024 descriptors, from outside and from inside
	@$(BIN)/pytest -q -s -m "slow or not slow" tests/integration/floods $(ARGS)

# Twenty minutes; prints each schedule. ARGS="-k kills" or ARGS="-k part0" runs a part, SEED=7 another two hundred of
# each, and ONLY=31 one of them alone.
test-endurance: setup  ## 200 schedules each of kills, failing files, network faults and clock jumps, on whole federations
	@$(BIN)/pytest -q -s -n 4 --dist worksteal -m slow -o faulthandler_timeout=0 tests/endurance/schedules $(ARGS)

# Ten minutes; prints seeds and figures. ARGS="-k part3" or ARGS="-k every" runs a part.
test-tampering: setup  ## change every column of a busy federation's ledgers and flip 10,000 bits: verify finds it all
	@$(BIN)/pytest -q -s -m "slow or not slow" tests/federation/ledger/tampering $(ARGS)

# Ten minutes. 800,000 of the messages meet decoders, ARGS="-k decoders", and 200,000 the calls of a coordinator over
# gRPC, ARGS="-k SiteService" those of one service. SEED=7 makes others.
fuzz: setup  ## a million mutated messages against every decoder and every call of both services
	@$(BIN)/pytest -q -s -n $(WORKERS) --dist worksteal -m slow -o faulthandler_timeout=0 tests/endurance/fuzz $(ARGS)

# Ten minutes; prints what the processes hold meanwhile. QUESTIONS=10 asks five times as much.
test-load: setup  ## 200 agents, 50 analysts and 20,000 releases over loopback
	@$(BIN)/pytest -q -s -m slow -o faulthandler_timeout=0 tests/endurance/load $(ARGS)

# Eight minutes; ARGS="-k noise" tries some of them.
test-mutants: setup  ## break sixty promises, one at a time, and see a test fail for each
	@$(BIN)/pytest -q -s -m slow tests/mutants $(ARGS)

# Half as long again as the tests. Lines and branches, in whole per cent, as they were recorded.
REACHED = $(shell sed -n 's/.*"percent": //p' tests/recorded/measured/coverage.json)
test-coverage: setup  ## run the tests that run in parallel, and see that they reach no less of the source than recorded
	@$(call PARALLEL,not slow) --cov --cov-report=term:skip-covered --cov-fail-under=$(REACHED)

# Two minutes, the kernels that run the notebooks included.
test-docs: setup  ## build the documentation site strictly and look at what was made
	@$(BIN)/pytest -q -m slow tests/docs/test_site.py $(ARGS)

check: setup  ## style, types, layers and generated code, in under a minute
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet . || { echo "Run .venv/bin/ruff format ."; exit 1; }
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python -m tools.generate_protos --check
	@$(BIN)/pytest -q tests/architecture

# The tools that make it are in an environment of their own, and so is what the notebooks run.
SITE ?= build/docs
docs: setup  ## build the documentation site into build/docs, with the notebooks' answers and pictures
	@tools/setup docs/requirements.lock .venv-docs
	@PATH="$(CURDIR)/.venv-docs/bin:$$PATH" .venv-docs/bin/sphinx-build -E -W --keep-going -n -q \
	    -c docs -d "$(SITE)-doctrees" . "$(SITE)"
	@echo "Open $(SITE)/index.html"

pictures: setup  ## draw every kind of picture into build/pictures, to be looked at
	@$(BIN)/python -m tests.analyst.pictures.gallery build/pictures

mirrors: setup  ## print how the source is laid out, and what one question meets on its way; judges nothing
	@$(BIN)/python -m tools.house
	@$(BIN)/python -m tools.trace

protos: setup  ## generate the committed wire code from the .proto files
	@$(BIN)/python -m tools.generate_protos

bench: setup  ## run every benchmark under bench/
	@for bench in bench/[!_]*.py; do echo "== $$bench"; $(BIN)/python "$$bench" || exit 1; done

# One version of each package for every Python; hashes of every file; no address of any index.
COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --fork-strategy fewest \
    --only-binary :all: --generate-hashes --no-emit-index-url --no-emit-find-links --no-annotate \
    --no-emit-package wardround --custom-compile-command "make lock"

lock: setup  ## choose the newest versions anew, into requirements.lock and the containers' locks
	@$(COMPILE) --upgrade --extra dev -o requirements.lock pyproject.toml
	@$(COMPILE) -c requirements.lock --extra docs -o docs/requirements.lock pyproject.toml
	@$(COMPILE) -c requirements.lock -o deploy/coordinator.lock pyproject.toml
	@$(COMPILE) -c requirements.lock --extra duckdb --extra postgresql -o deploy/site.lock pyproject.toml
	@echo hatchling | $(COMPILE) -c requirements.lock -o deploy/build.lock -
	@tools/setup

clean:  ## remove .venv and everything generated but not committed
	rm -rf .venv .venv-docs .setup.lock build dist .coverage .coverage.* htmlcov .hypothesis .import_linter_cache \
	    .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
