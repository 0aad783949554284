# Every target sets up what it needs by itself; when that is done already, it costs a few milliseconds.
PYTHON_BIN := .venv/bin/python
PYTEST := $(PYTHON_BIN) -m pytest

.DEFAULT_GOAL := help
.PHONY: help setup try try-down demo test steady check lint fault soak bench locked sbom audit clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | while IFS="$$(printf '\t')" read -r name text; do \
		printf '  make %-8s %s\n' "$$name" "$$text"; done

setup: ## make .venv with the pinned dependencies, and see to Java
	@PYTHON="$(PYTHON)" scripts/setup.sh

try: setup ## a pipeline that stays, with its page, to look at
	@$(PYTHON_BIN) -m demo.trying

try-down: setup ## stop and remove what try made
	@$(PYTHON_BIN) -m demo.trying --down

demo: setup ## replicate between two embedded PostgreSQL servers while processes are killed; SOURCE=mariadb: from MariaDB
	@$(PYTHON_BIN) -m demo $(if $(SOURCE),--source $(SOURCE))

test: setup ## lint and all tests; what fails runs once more alone
	@$(PYTHON_BIN) -m tests.support.spark_archive & $(MAKE) --no-print-directory lint; code=$$?; wait; exit $$code
	@$(PYTHON_BIN) -m tests.support.suite -n 4 --dist loadgroup --no-loadscope-reorder

steady: setup ## all tests three times on a busy machine with a slow disk: which fail by the moment
	@$(PYTHON_BIN) -m tests.support.steady -q -n 4 --dist loadgroup --no-loadscope-reorder

check: lint ## the quick loop: lint, the tests without databases and Spark, and which test proves what
	$(PYTEST) -q -n 2 -m "not e2e and not spark and not soak"
	@$(PYTHON_BIN) -m tests.support.proved

lint: setup ## ruff, mypy, import-linter
	@.venv/bin/ruff check --quiet .
	@.venv/bin/ruff format --check --quiet . || { echo "run: .venv/bin/ruff format ."; exit 1; }
	@.venv/bin/mypy --no-error-summary
	@.venv/bin/lint-imports --no-logo

fault: setup ## the crash and damage tests alone
	$(PYTEST) -q -n 2 -m fault

soak: setup ## MINUTES (30) of simulated lives; ten minutes under load; then HOSTILE (100,000) inputs for each parser
	@$(PYTHON_BIN) -m tests.world --first $$(date +%s) --minutes $(or $(MINUTES),30) --page docs/reliability.md
	$(PYTEST) -q -n 2 --dist loadgroup -m soak
	TRAILGATE_KERNELS=OFF $(PYTEST) -q -n 2 --dist loadgroup tests/contract tests/fault tests/e2e/test_replicat_postgres.py
	@$(PYTHON_BIN) -m demo.soak
	TRAILGATE_HOSTILE=$(or $(HOSTILE),100000) $(PYTEST) -q -n 2 --dist loadgroup --timeout 0 -m hostile

bench: setup ## the benchmarks
	@$(PYTHON_BIN) -m benchmarks

locked: setup ## requirements.lock anew from constraints.txt, with hashes
	@scripts/supply.sh lock

sbom: setup ## build/sbom.cdx.json: what is installed, as CycloneDX
	@scripts/supply.sh sbom

audit: setup ## look for known problems of what is installed, in a public database
	@scripts/supply.sh audit

clean: ## remove everything that was made here
	rm -rf .venv build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache spark-warehouse
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
