# Two commands matter: `make demo` and `make test`. Each needs only Python >= 3.11 and make, and creates .venv itself.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUN := $(BIN)/python
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.DEFAULT_GOAL := help
.PHONY: help demo test lint types layers unit docs docs-serve format lock coverage reproduce benchmark learned-priors taxonomy \
	real-priors clicks clicks-at-scale estimators-at-scale out-of-core gallery clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

demo: $(VENV)/.installed  ## a shop log, a fit, a decision
	$(BIN)/manyarms demo

test: lint types layers unit docs  ## everything that must hold: lint, types, layers, tests, documents

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed-dev
	$(BIN)/pyright

layers: $(VENV)/.installed-dev
	$(BIN)/lint-imports

unit: $(VENV)/.installed-dev
	$(RUN) -m pytest -n 2 --dist loadgroup -rs

# A link that leads nowhere, an anchor that is not there, a page outside the menu: each is an error. Material's notice of its successor
# is no warning about these pages.
docs: $(VENV)/.installed-dev  ## the documents as a site, in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

docs-serve: $(VENV)/.installed-dev  ## the same on http://127.0.0.1:8000, made anew as pages change
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve --dev-addr 127.0.0.1:8000

format: $(VENV)/.installed-dev  ## let ruff mend what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

coverage: $(VENV)/.installed  ## 2,000 simulated problems: do 95 % intervals cover? (minutes)
	$(RUN) studies/interval_coverage.py

reproduce: $(VENV)/.installed  ## every figure of the paper into docs/reproduction.md; MANYARMS_DATA names the data (hours)
	@test -n "$(MANYARMS_DATA)" || { echo "set MANYARMS_DATA to a folder with ml-1m/, kuairec/, jester/ and obd/"; exit 1; }
	$(BIN)/manyarms reproduce --all --paper --out docs/reproduction --page docs/reproduction.md

benchmark: $(VENV)/.installed  ## a million actions: time and memory
	$(RUN) studies/large_catalog.py

learned-priors: $(VENV)/.installed  ## priors learned from 200 data sets: z-scores and coverage (minutes)
	$(RUN) studies/learned_priors.py

taxonomy: $(VENV)/.installed  ## 20,000 nodes, 200,000 actions: time and memory, and what learning costs
	$(RUN) studies/taxonomy.py --learn

real-priors: $(VENV)/.installed  ## priors on MovieLens and Jester; MANYARMS_DATA names their folder (half an hour)
	@test -n "$(MANYARMS_DATA)" || { echo "set MANYARMS_DATA to a folder with ml-1m/ and jester/"; exit 1; }
	$(RUN) studies/real_priors.py movielens $(MANYARMS_DATA)/ml-1m
	$(RUN) studies/real_priors.py movielens-halves $(MANYARMS_DATA)/ml-1m
	$(RUN) studies/real_priors.py jester $(MANYARMS_DATA)/jester

clicks: $(VENV)/.installed-dev  ## clicks at 1, 5 and 20 %: every treatment beside an exact sampler (a quarter of an hour)
	$(RUN) studies/clicks.py
	$(RUN) studies/binary_setting_one.py

clicks-at-scale: $(VENV)/.installed  ## 100,000 actions, a million rounds, 2 % clicks: time and memory
	$(RUN) studies/clicks_at_scale.py

estimators-at-scale: $(VENV)/.installed  ## every estimator at n = 100,000, K = 10,000: time and memory
	$(RUN) studies/estimators_at_scale.py

out-of-core: $(VENV)/.installed  ## 20 million rounds on disk: a fit beside only reading them (3 GB of disk, minutes)
	@test -d big-logs || $(RUN) benchmarks/make_logs.py big-logs
	$(RUN) benchmarks/out_of_core.py big-logs
	$(RUN) benchmarks/cluster_stages.py big-logs

gallery: $(VENV)/.installed  ## the charts of the demo's report, for the documents
	$(RUN) studies/gallery.py docs/report

lock: $(VENV)/.installed-dev  ## renew constraints.txt
	$(INSTALL) uv
	$(BIN)/uv pip compile --quiet --universal --no-emit-index-url --no-header --no-annotate --all-extras \
		--python-version 3.11 --upgrade -o constraints.txt pyproject.toml

clean:  ## remove what these targets made
	rm -rf $(VENV) site demo-shop big-logs .pytest_cache .ruff_cache .hypothesis .import_linter_cache

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "manyarms needs Python 3.11 or newer; name one with: make PYTHON=/path/to/python3.11 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(INSTALL) -e .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(INSTALL) -e '.[dev]'
	@touch $@
