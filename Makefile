# Two commands for a newcomer: `make train` and `make test`. Each sets up .venv first if need be.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
READY := $(VENV)/.ready
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

# Tests run beside each other in so many processes; each of them has a few children of its own.
JOBS ?= 2

# Without bytecode each worker, and each program that a test starts, compiles every module again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: train test fuzz test-all test-sorrel test-pythons test-minimum check format bench figures site clean

# The main job: two agents learn Treasure Hunt, in a process beside the game, in a minute or two
# on two cores. Networks half as wide as by default, so that the learners keep up with the game.
train: $(INSTALLED)
	$(BIN)/remuda train treasure_hunt --policy.network.hidden 128 128 --run.turns 500000 $(ARGS)

# In minutes: without the tests marked `slow` and `long`. `ARGS="--durations 50"` shows which tests
# took longest.
test: $(READY)
	$(BIN)/python -m pytest -n $(JOBS) $(ARGS)

# Random input for a minute or two: compiled kernels against their definitions, numbers of
# checkpoints and files of runs.
fuzz: $(READY)
	$(BIN)/python -m pytest -n $(JOBS) -m '' tests/fuzz tests/faults/test_fuzzed_*.py $(ARGS)

# Everything, the learning and stress suites too: an hour or two.
test-all: $(READY)
	$(BIN)/python -m pytest -n $(JOBS) -m '' $(ARGS)

# Sorrel's own games and models. It needs Python 3.12 or newer, and brings a PyTorch of 6 GB.
SORREL := .venv-sorrel
PYTHON312 ?= $(firstword $(foreach p,python3.12 python3.13 $(wildcard $(HOME)/.pyenv/versions/3.1[23].*/bin/python3),\
	$(shell $(p) -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null && echo $(p))))

$(SORREL)/.ready: pyproject.toml
	@test -n "$(PYTHON312)" || { echo "Sorrel needs Python 3.12 or newer; name one with make PYTHON312=..."; exit 1; }
	$(PYTHON312) -m venv $(SORREL)
	$(SORREL)/bin/python -m pip install --quiet --disable-pip-version-check 'sorrel==1.6.0' \
		--editable '.[sorrel]' pytest pytest-timeout pytest-xdist hypothesis
	touch $@

test-sorrel: $(SORREL)/.ready
	$(SORREL)/bin/python -m pytest -n $(JOBS) -m '' tests/sorrel_itself $(ARGS)

# The tests with each Python of these that is here, and the versions of constraints.txt. PyTorch may take 6 GB each.
PYTHONS ?= 3.11 3.12 3.13
interpreter = $(firstword $(foreach p,python$(1) $(wildcard $(HOME)/.pyenv/versions/$(1).*/bin/python3),\
	$(shell $(p) -c 'print()' >/dev/null 2>&1 && echo $(p))))

test-pythons: $(foreach v,$(PYTHONS),test-python-$(v))

test-python-%:
	@test -n "$(call interpreter,$*)" || echo "Python $* is not here: left out"
	@test -z "$(call interpreter,$*)" || $(MAKE) test VENV=.venv-$* PYTHON="$(call interpreter,$*)"

# The tests with the oldest versions that pyproject.toml allows, of what every installation needs.
MINIMUM := .venv-minimum

$(MINIMUM)/.ready: pyproject.toml minimum.txt
	$(or $(call interpreter,3.11),$(PYTHON)) -m venv $(MINIMUM)
	$(MINIMUM)/bin/python -m pip install --quiet --disable-pip-version-check --constraint minimum.txt \
		--editable '.[analysis,cluster,dashboard,onnx,openspiel,pettingzoo]' \
		pytest pytest-timeout pytest-xdist hypothesis greenlet hatchling ipykernel nbclient onnxruntime openskill selenium
	touch $@

test-minimum: $(MINIMUM)/.ready
	NUMBA_CACHE_DIR=$(CURDIR)/$(MINIMUM)/compiled $(MINIMUM)/bin/python -m pytest -n $(JOBS) $(ARGS)

check: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -n $(JOBS)

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(READY)
	$(BIN)/python benchmarks/games.py
	$(BIN)/python benchmarks/waiting.py
	$(BIN)/python benchmarks/stall.py
	$(BIN)/python benchmarks/tracing.py
	$(BIN)/python benchmarks/throughput.py
	$(BIN)/python benchmarks/stacks.py policies
	$(BIN)/python benchmarks/stacks.py one_copy
	$(BIN)/python benchmarks/stacks.py floor

# The documentation as a site, in site/, with the generated reference; a dead link is an error.
site: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

# Puts what benchmarks recorded (with --record) into README.md and docs.
figures: $(READY)
	$(BIN)/python benchmarks/figures.py

# What the program needs, and PettingZoo's games.
$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))' || \
		{ echo "Remuda needs Python 3.11 to 3.13; name one with make PYTHON=python3.12"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) torch==2.13.0
	$(PIP) --editable '.[pettingzoo]'
	touch $@

# What tests and checks need besides: other libraries to compare with, and loggers.
$(READY): $(INSTALLED)
	$(PIP) --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) $(SORREL) $(MINIMUM) .venv-3.* .mypy_cache .ruff_cache .pytest_cache
