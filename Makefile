# make demo   set everything up and run the main job      make test   all tests (installs torch as well)
# make quick  tests that need no simulator and no torch
# make records    proves what has no record in proofs/, and keeps it   make prove   proves all of them anew
# make docs   the documentation site, in build/docs   make lint   ruff and mypy
# make figures    the tables of docs/machine_code.md, after a change to a kernel
# make kernels    libraries of the sm_90a kernels, in build/sm_90a
# make test-gpu   what needs an H200, with those libraries; PYTHON and LIBRARIES say whose, where there is no .venv
BIN := .venv/bin
QUICK := not simulator and not torch and not slow and not gpu
WORKERS ?= 2
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

.PHONY: demo test records prove quick kernels figures docs test-gpu lint setup-demo setup-test setup-quick lock clean

demo: setup-demo
	$(BIN)/tirx-attn demo

test: setup-test lint
	$(PYTEST) -m "not gpu"

# Proofs that have no record; all of them, in place of every record.
records: setup-test
	$(PYTEST) -m "(simulator or mutants) and not gpu" --keep-records

prove: setup-test
	$(PYTEST) -m "(simulator or mutants) and not gpu" --keep-records --prove all

quick: setup-quick
	$(PYTEST) -m "$(QUICK)"

kernels: setup-demo
	$(BIN)/python -m tests.engines build/sm_90a

figures: setup-quick
	$(BIN)/python scripts/machine_code_page.py

# In place of an older site: a page that is gone would stay.
docs: setup-test
	rm -rf build/docs
	$(BIN)/python -m sphinx -W --keep-going -nq -d build/doctrees docs build/docs

PYTHON ?= $(BIN)/python
test-gpu:
	TIRX_ATTN_KERNELS=build/sm_90a TIRX_ATTN_LIBRARIES=$(LIBRARIES) $(PYTHON) -m pytest -m gpu $(ARGS)

lint:
	$(BIN)/ruff check .
	$(BIN)/mypy

setup-demo:
	@sh scripts/bootstrap.sh simulator

setup-test:
	@sh scripts/bootstrap.sh full

setup-quick:
	@sh scripts/bootstrap.sh dev

lock:
	sh scripts/lock.sh

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
