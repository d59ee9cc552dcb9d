# make demo   set everything up and run the main job      make test   all tests (installs torch as well)
# make quick  tests that need no simulator and no torch   make lint   ruff and mypy
BIN := .venv/bin
QUICK := not simulator and not torch and not slow
WORKERS ?= 2
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

.PHONY: demo test quick lint setup-demo setup-test setup-quick lock clean

demo: setup-demo
	$(BIN)/tirx-attn demo

# Tests that measure time come first, with nothing beside them.
test: setup-test lint
	$(BIN)/python -m pytest -m alone
	$(PYTEST) -m "not alone"

quick: setup-quick
	$(PYTEST) -m "$(QUICK)"

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
