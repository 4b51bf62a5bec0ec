# Everything works on a machine with Python 3.11 or newer and make: the first target that needs it
# makes .venv and installs the pinned versions of constraints.txt from the package registry.
# Other versions: make check PYTHON=python3.10 CONSTRAINTS= WITH=apache-airflow==3.3.0
CONSTRAINTS ?= constraints.txt
PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3.13 || command -v python3)
BIN := .venv/bin
INSTALLED := .venv/.installed
# uv installs in seconds what takes pip minutes; but pip alone looks where a machine may keep its own build of torch.
PINS := $(addprefix --constraint ,$(CONSTRAINTS))
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check $(PINS)
PACKAGES := $(PINS) --editable '.[dev]' $(if $(WITH),'$(WITH)')
PAGES := airflow_training/web/pages
# Where there is no npm, the tests of the pages' sources are skipped; what is built of them is in the repository. CI has to have one.
NODE := $(if $(shell command -v npm),$(PAGES)/node_modules/.installed,$(if $(CI),npm))

# The tests start a few hundred interpreters; without bytecode each would compile the package anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help install pages screenshots demo docs check test scenarios lint types pure fmt e2e fab npm emulator cluster frameworks light soak mutations bench changelog clean

help: ## list the targets
	@grep -hE '^[a-z0-9]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10 if "$(CONSTRAINTS)" == "" else 11))' || { echo "Python 3.11 or newer is needed, $(PYTHON) is older: make PYTHON=/path/to/python3.11"; exit 2; }
	@mkdir -p .venv && date +%s > .venv/.started
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) --no-compile --no-deps torch
	if $(PIP) uv; then $(BIN)/uv pip install --quiet --python $(BIN)/python $(PACKAGES); else $(PIP) $(PACKAGES); fi
	@echo "installed in $$(($$(date +%s) - $$(cat .venv/.started))) s" | tee $@

$(PAGES)/node_modules/.installed: $(PAGES)/package-lock.json
	npm ci --prefix $(PAGES) --silent
	@touch $@

npm:
	@echo "npm is missing: install node, of which it is a part"; exit 1

pages: $(INSTALLED) $(NODE) ## build the pages from their sources, and the types of the API that they use
	$(BIN)/python -m airflow_training.web.openapi > $(PAGES)/node_modules/.openapi.json
	cd $(PAGES) && node types.mjs node_modules/.openapi.json src/schema.ts && npm run --silent check && npm run --silent build

screenshots: $(INSTALLED) ## make the pictures of docs/pages.md and docs/no-code.md anew (with Chromium)
	$(BIN)/python -m tests.web.screenshots

install: $(INSTALLED) ## make .venv with everything the project needs

demo: $(INSTALLED) ## start Airflow and train a real job, end to end (KEEP=1 leaves Airflow running)
	$(BIN)/airflow-training demo --airflow $(if $(KEEP),--keep)

check: $(INSTALLED) ## lint, types and all tests that start no process: while working
	$(BIN)/python -m tests.gate lint types pure

test: $(INSTALLED) ## the same and some scenarios with real processes: what CI runs
	$(BIN)/python -m tests.gate lint types pure scenarios

pure: $(INSTALLED)
	$(BIN)/python -m tests.gate.halves --timeout 60 --durations 50

scenarios: $(INSTALLED)
	$(BIN)/python -m tests.gate.rerun -n 2 --dist loadgroup --durations 50 -m scenario

e2e: $(INSTALLED) $(NODE) ## all other tests with real processes, emulated pods and a real Airflow (ROOM=runtimes for those of one room)
	$(BIN)/python -m tests.gate.rerun -n 2 --dist loadgroup --durations 50 -m "e2e and not cluster and not frameworks and not soak" $(if $(ROOM),tests/$(ROOM))

.fab/.installed: $(INSTALLED)
	test -x .fab/bin/python || $(PYTHON) -m venv .fab
	$(if $(wildcard $(BIN)/uv),$(BIN)/uv pip install --quiet --python .fab/bin/python,.fab/bin/python -m pip install --quiet) $(PACKAGES) apache-airflow-providers-fab
	@touch $@

fab: .fab/.installed ## who sees the pages under Airflow's FAB auth manager, in an environment of its own
	.fab/bin/python -m pytest tests/airflow/test_pages_fab_e2e.py

emulator: $(INSTALLED) ## the tests of the emulated Kubernetes API: after a change to tests/kubernetes/emulator
	$(BIN)/python -m pytest -n 2 tests/kubernetes/emulated

cluster: $(INSTALLED) ## benchmarks and tests on the cluster of KUBECONFIG, with TRAINING_IMAGE and BUSYBOX_IMAGE
	-$(BIN)/python -m benchmarks kubernetes
	$(BIN)/python -m pytest tests/kubernetes/e2e -m cluster

light: ## the command line's tests where only the wheel and what it requires are installed
	rm -rf .light
	$(PYTHON) -m venv .light
	.light/bin/python -m pip install --quiet --disable-pip-version-check '.[logs,plots,postgres]' hypothesis pytest pytest-timeout
	.light/bin/python -m pytest tests/cli -m pure

soak: $(INSTALLED) $(NODE) ## the long random tests, of which `make e2e` runs a sample
	ALL_EXAMPLES=1 $(BIN)/python -m pytest --hypothesis-profile=default -W error::ResourceWarning -W error::pytest.PytestUnraisableExceptionWarning -m "soak or hypothesis"

# A virtual environment for each framework that ours does not hold.
.frameworks/%/.installed: tests/trainings/requirements/%.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check -r $<
	@touch $@

frameworks: $(INSTALLED) $(patsubst tests/trainings/requirements/%.txt,.frameworks/%/.installed,$(wildcard tests/trainings/requirements/*.txt)) ## train with every framework and kill it (KILLS=200 SEED=1: at random); have launchers read plans (MEGATRON_LM=checkout)
	$(BIN)/python -m pytest tests/trainings

mutations: $(INSTALLED) ## break each guarantee on purpose and watch a test fail (ONLY=3 for one row)
	$(BIN)/python -m tests.mutations $(ONLY)

docs: $(INSTALLED) ## the site of the docs, in site/; a link that leads nowhere is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

changelog: $(INSTALLED) ## write the section of the new version from the fragments of changelog.d/ (DRAFT=1 only shows it)
	$(BIN)/towncrier build $(if $(DRAFT),--draft,--yes) --version "$$($(BIN)/python -c 'import airflow_training; print(airflow_training.__version__)')"

lint: $(INSTALLED) ## ruff: rules and format; codespell
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell airflow_training changelog.d dags docker docs frameworks operators sensors *.md

fmt: $(INSTALLED) ## let ruff mend and format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(INSTALLED) ## mypy, strict
	$(BIN)/mypy

bench: $(INSTALLED) ## print the benchmark figures
	@test -d .bench || $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target .bench dag-factory==1.1.0
	PYTHONPATH=.bench $(BIN)/python -m benchmarks $(ONLY)

clean: ## remove .venv, caches and what the demo left
	rm -rf .venv .demo .bench .fab .frameworks .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
