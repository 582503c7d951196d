# Every target sets up what it needs; a fresh Linux machine with Python >= 3.11 and make is enough.
#
#   make verify     all tiers against one another, then the digits example
#   make test       the tests and the docstring examples, except those marked slow or gate
#   make test-slow  those marked slow
#   make test-torch those that need PyTorch or Triton, with both, on the CPU
#   make test-all   all of them
#   make test-minimum   the tests, with the least version of each dependency
#   make gate       what a release needs: all tests, types, pages, a recording of every PTX form, more inputs

PYTHON ?= python3
VENV ?= .venv
JOBS ?= $(shell nproc)

BIN := $(VENV)/bin
# uv takes a third of pip's time; pip is there where uv cannot be had.
install = $(BIN)/uv pip install --quiet --python $(1)/python $(2) || $(1)/python -m pip install --quiet $(2)
TESTS := cli,compile,test
PYTEST := $(BIN)/python -m pytest --dist=worksteal -n
READY := $(VENV)/.ready
READY_DEV := $(VENV)/.ready-dev

.PHONY: verify test test-slow test-torch test-all test-minimum gate lint types docs build clean
.DELETE_ON_ERROR:
# Images of containers often set it; every process and every worker would compile our modules again.
unexport PYTHONDONTWRITEBYTECODE

# So many inputs have every scheme, transpose, output, layout, class of geometry and routine; `make gate` has more.
verify: $(READY)
	$(BIN)/simwarp verify --inputs 40 --inputs bmm=80 --inputs bmm-wgmma=20 --inputs bconv2d-wgmma=20 \
	    --inputs bconv2d-groups=20 --inputs bconv2d-windows=10 --inputs bnn=15 --inputs bnn-layers=10 --inputs bnn-words=10 \
	    --inputs bnn-whole-words=13 --inputs bnn-whole-fsb=8 \
	    --inputs blas3=all --budget 900 --jobs $(JOBS)
	$(BIN)/python examples/digits.py
	$(BIN)/python examples/networks/recognise.py

test: $(READY)
	$(PYTEST) $(JOBS) -m "not slow and not gate"

# What `make test` leaves out, and CI runs. A worker more than cores: many of these wait for processes.
test-slow: $(READY)
	$(PYTEST) $$(($(JOBS) + 1)) -m "slow and not gate"

# torch by pip, which is told its index and its limits; its newest builds bring CUDA's libraries.
TORCH ?= torch==2.13.0
TORCH_BIN := $(VENV)/torch/bin
test-torch: $(READY)
	$(PYTHON) -m venv $(VENV)/torch
	$(TORCH_BIN)/python -m pip install --quiet '$(TORCH)' 'triton>=3.4,<4'
	$(call install,$(TORCH_BIN),-e '.[$(TESTS)]')
	$(TORCH_BIN)/python -m pytest -n $(JOBS) --dist=worksteal -k "torch or triton" -m "not gpu and not gate"

test-all: $(READY)
	$(PYTEST) $(JOBS)

# The oldest versions that pyproject.toml allows; uv resolves them, which pip cannot.
test-minimum:
	$(PYTHON) -m venv $(VENV)-minimum
	$(VENV)-minimum/bin/python -m pip install --quiet uv
	$(VENV)-minimum/bin/uv pip install --quiet --python $(VENV)-minimum/bin/python --resolution lowest-direct \
	    -e '.[$(TESTS)]'
	$(VENV)-minimum/bin/python -m pytest -n $(JOBS) --dist=worksteal -m "not slow and not gate"

gate: lint types docs test-all
	$(BIN)/simwarp coverage --strict
	$(BIN)/simwarp verify --inputs 120 --inputs blas3=all --budget 1800 --jobs $(JOBS)

lint: $(READY_DEV)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(READY_DEV)
	$(BIN)/basedpyright --pythonpath $(BIN)/python

docs: $(READY_DEV)
	$(BIN)/mkdocs build --strict

build: $(READY_DEV)
	$(BIN)/python -m build

clean:
	rm -rf site dist build .pytest_cache .ruff_cache .hypothesis

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo 'simwarp needs Python 3.11 or newer: make PYTHON=python3.12 ...' >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(READY): pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet uv || true
	$(call install,$(BIN),-e '.[$(TESTS)]')
	@touch $@

$(READY_DEV): pyproject.toml | $(READY)
	$(call install,$(BIN),-e '.[dev]')
	@touch $@
