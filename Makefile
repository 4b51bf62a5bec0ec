# Everything works on a machine with Python 3.11 or newer and make: the first target that needs it
# makes .venv and installs the pinned versions of constraints.txt from the package registry.
PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3.13 || command -v python3)
BIN := .venv/bin
INSTALLED := .venv/.installed

.DEFAULT_GOAL := help
.PHONY: help install demo test check lint fmt types e2e mutations bench clean

help: ## list the targets
	@grep -hE '^[a-z0-9]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-9s %s\n", $$1, $$2}'

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed, $(PYTHON) is older: make PYTHON=/path/to/python3.11"; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

install: $(INSTALLED) ## make .venv with everything the project needs

demo: $(INSTALLED) ## start Airflow and train a real job, end to end (KEEP=1 leaves Airflow running)
	$(BIN)/airflow-training demo --airflow $(if $(KEEP),--keep)

test: lint types ## lint, types and all tests, also those with real processes and a real Airflow
	$(BIN)/python -m pytest -n 2 -m "not airflow and not cluster"
	$(BIN)/python -m pytest -n 2 --dist loadfile -m airflow

check: lint types ## the same without the slow end-to-end tests
	$(BIN)/python -m pytest -n 2 -m "not e2e and not cluster"

e2e: $(INSTALLED) ## benchmarks and tests on the cluster of KUBECONFIG, with TRAINING_IMAGE and BUSYBOX_IMAGE
	-$(BIN)/python -m benchmarks kubernetes
	$(BIN)/python -m pytest tests/kubernetes/e2e -m cluster

mutations: $(INSTALLED) ## break each guarantee on purpose and watch a test fail (ONLY=3 for one row)
	$(BIN)/python -m tests.mutations $(ONLY)

lint: $(INSTALLED) ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

fmt: $(INSTALLED) ## let ruff mend and format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(INSTALLED) ## mypy, strict
	$(BIN)/mypy

bench: $(INSTALLED) ## print the benchmark figures
	@test -d .bench || $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target .bench dag-factory==1.1.0
	PYTHONPATH=.bench $(BIN)/python -m benchmarks $(ONLY)

clean: ## remove .venv, caches and what the demo left
	rm -rf .venv .demo .bench .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
