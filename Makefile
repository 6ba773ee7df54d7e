# Two commands matter: `make demo` and `make test`. Each needs only Python >= 3.11 and make, and creates .venv itself.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUN := $(BIN)/python
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.DEFAULT_GOAL := help
.PHONY: help demo test test-all test-dependencies lint types types-of-tests layers unit unit-all docs docs-serve format lock release-check \
	line-coverage coverage reproduce benchmark learned-priors taxonomy real-priors decisions clicks clicks-at-scale \
	estimators-at-scale out-of-core plans looks segments warehouse notebooks comparison gallery item-index trust clean

help:  ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

demo: $(VENV)/.installed  ## a made-up shop, from its log to a decision
	$(BIN)/manyarms demo

# Two at a time: where a test waits for a process or a file, the types and the docs go on.
test: $(VENV)/.installed-dev  ## lint, types, layers, the fast tests, the docs
	+@$(MAKE) --no-print-directory -j 2 lint layers types unit docs

test-all: lint types types-of-tests layers unit-all docs  ## the same with the slow tests and the types of the tests

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed-dev
	$(BIN)/pyright

types-of-tests: $(VENV)/.installed-dev  ## every name and attribute that a test uses exists
	$(BIN)/pyright -p tests

layers: $(VENV)/.installed-dev
	$(BIN)/lint-imports

# In the order of their names: by number of tests, the files with few and long ones would be left for one process at the end.
unit: $(VENV)/.installed-dev
	$(RUN) -m pytest -n 2 --dist loadgroup --no-loadscope-reorder -rs -m "not slow"

unit-all: $(VENV)/.installed-dev
	$(RUN) -m pytest -n 2 --dist loadgroup -rs

line-coverage: $(VENV)/.installed-dev  ## which lines of src the fast tests run (a quarter of an hour)
	$(INSTALL) pytest-cov
	$(RUN) -m pytest -n 2 --dist loadgroup -q -m "not slow" --cov=manyarms --cov-report=term:skip-covered

# `lowest-direct` installs the oldest versions that pyproject.toml allows, `highest` the newest; neither uses constraints.txt.
RESOLUTION ?= lowest-direct
test-dependencies: $(VENV)/.installed-dev  ## the tests with the oldest dependencies, or with RESOLUTION=highest the newest
	$(INSTALL) uv
	$(BIN)/uv venv --quiet --clear .venv-$(RESOLUTION)
	$(BIN)/uv pip install --quiet --python .venv-$(RESOLUTION) --resolution $(RESOLUTION) -e '.[dev]'
	.venv-$(RESOLUTION)/bin/python -m pytest -n 2 --dist loadgroup -rs -m "not slow"

release-check: $(VENV)/.installed-dev  ## build the package, check its metadata, install the wheel in a clean environment, run the demo
	$(INSTALL) build hatchling twine
	rm -rf dist .venv-release
	$(RUN) -m build --quiet --no-isolation
	$(BIN)/twine check --strict dist/*
	$(PYTHON) -m venv .venv-release
	.venv-release/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt dist/*.whl
	.venv-release/bin/manyarms --version
	cd .venv-release && bin/manyarms demo --output demo-shop
	rm -rf .venv-release

# A broken link, a missing anchor or a page outside the menu is an error. The variable silences an advertisement, not a warning.
docs: $(VENV)/.installed-dev  ## build the docs site into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

docs-serve: $(VENV)/.installed-dev  ## serve the docs on http://127.0.0.1:8000 and rebuild them as pages change
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve --dev-addr 127.0.0.1:8000

format: $(VENV)/.installed-dev  ## let ruff fix what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

coverage: $(VENV)/.installed  ## how often 95 % intervals cover, on 2,000 simulated problems (minutes)
	$(RUN) studies/interval_coverage.py

reproduce: $(VENV)/.installed  ## rerun every figure of the paper into docs/reproduction.md; needs MANYARMS_DATA (hours)
	@test -n "$(MANYARMS_DATA)" || { echo "set MANYARMS_DATA to a folder with ml-1m/, kuairec/, jester/ and obd/"; exit 1; }
	$(BIN)/manyarms reproduce --all --paper --out docs/reproduction --page docs/reproduction.md

benchmark: $(VENV)/.installed  ## a million actions: time and memory
	$(RUN) studies/large_catalog.py

learned-priors: $(VENV)/.installed  ## learn priors from 200 data sets: z-scores and coverage (minutes)
	$(RUN) studies/learned_priors.py

taxonomy: $(VENV)/.installed  ## a taxonomy of 20,000 nodes and 200,000 actions: time and memory
	$(RUN) studies/taxonomy.py --learn

real-priors: $(VENV)/.installed  ## compare priors on MovieLens and Jester; needs MANYARMS_DATA (half an hour)
	@test -n "$(MANYARMS_DATA)" || { echo "set MANYARMS_DATA to a folder with ml-1m/ and jester/"; exit 1; }
	$(RUN) studies/real_priors.py movielens $(MANYARMS_DATA)/ml-1m
	$(RUN) studies/real_priors.py movielens-halves $(MANYARMS_DATA)/ml-1m
	$(RUN) studies/real_priors.py jester $(MANYARMS_DATA)/jester

decisions: $(VENV)/.installed  ## are gains and ships right where the model is wrong? rerun docs/decisions.md; needs MANYARMS_DATA (an hour)
	@test -n "$(MANYARMS_DATA)" || { echo "set MANYARMS_DATA to a folder with multilabel/, jester/, kuairec/, ml-1m/ and obd/"; exit 1; }
	$(RUN) studies/decisions.py --refresh docs/decisions.md

backtests: $(VENV)/.installed  ## do forecasts of the next day hold, and does the drift alarm keep its promise? (a quarter of an hour)
	$(RUN) studies/backtests.py

warehouse: $(VENV)/.installed-dev  ## bytes that leave PostgreSQL for a fit of a million rounds; needs its server programs (a minute)
	$(RUN) studies/warehouse_bytes.py

guardrails: $(VENV)/.installed  ## false ships with and without guardrails, in worlds with two goals (ten minutes)
	$(RUN) studies/guardrails.py

clicks: $(VENV)/.installed-dev  ## click rates of 1, 5 and 20 %: every treatment beside an exact sampler (a quarter of an hour)
	$(RUN) studies/clicks.py
	$(RUN) studies/binary_setting_one.py

clicks-at-scale: $(VENV)/.installed  ## 100,000 actions, a million rounds, 2 % clicks: time and memory
	$(RUN) studies/clicks_at_scale.py

estimators-at-scale: $(VENV)/.installed  ## every estimator at n = 100,000, K = 10,000: time and memory
	$(RUN) studies/estimators_at_scale.py

out-of-core: $(VENV)/.installed  ## fit 20 million rounds from disk, compared with only reading them (3 GB of disk, minutes)
	@test -d big-logs || $(RUN) benchmarks/make_logs.py big-logs
	$(RUN) benchmarks/out_of_core.py big-logs
	$(RUN) benchmarks/cluster_stages.py big-logs

plans: $(VENV)/.installed  ## are plans right, and what does the best traffic save? needs MANYARMS_DATA for real sets (half an hour)
	$(RUN) studies/plans.py calibration
	$(RUN) studies/plans.py clicks --problems 100
	$(RUN) studies/plans.py traffic

looks: $(VENV)/.installed  ## do confidence sequences cover 10,000 looks at once? (a minute)
	$(RUN) studies/confidence_sequences.py

segments: $(VENV)/.installed  ## do intervals by segment cover, and how often is a loser named wrongly? (ten minutes)
	$(RUN) studies/segments.py --refresh docs/how-to/segments.md

notebooks: $(VENV)/.installed  ## run the scripts of notebooks/ and write them as notebooks (a minute)
	$(RUN) notebooks/build.py

# Open Bandit Pipeline asks for Python 3.10 or older, and runs on 3.11; it needs PyTorch, seaborn and the packages after it.
# Of PyTorch, pip takes the build without CUDA where it finds one of this version; the other brings gigabytes.
TORCH ?= torch==2.13.0
comparison:  ## other libraries on the digits of scikit-learn, into docs/comparison.md (minutes)
	$(PYTHON) -m venv .venv-neighbours
	.venv-neighbours/bin/python -m pip install --quiet --no-deps $(TORCH)
	.venv-neighbours/bin/python -m pip install --quiet . skdr-eval causalrl bayesianbandits torch seaborn pyyaml tqdm
	.venv-neighbours/bin/python -m pip install --quiet --no-deps --ignore-requires-python obp
	.venv-neighbours/bin/python benchmarks/comparison.py --refresh docs/comparison.md

gallery: $(VENV)/.installed  ## draw the charts of the demo's report for the docs
	$(RUN) studies/gallery.py docs/report

item-index: $(VENV)/.installed-dev  ## top-10 items from FAISS and hnswlib: exact, or what is lost (a minute; hnswlib is compiled)
	$(INSTALL) hnswlib
	$(RUN) studies/item_index.py

trust: $(VENV)/.installed-dev  ## the trust campaign, resumable, into docs/trust.md (an hour or more)
	$(RUN) -m trust --page docs/trust.md

# Without the extra `gpu`: which PyTorch fits depends on the machine, and every version brings gigabytes.
lock: $(VENV)/.installed-dev  ## update constraints.txt
	$(INSTALL) uv
	$(BIN)/uv pip compile --quiet --universal --no-emit-index-url --no-header --no-annotate --extra dev \
		--python-version 3.11 --upgrade -o constraints.txt pyproject.toml

clean:  ## remove everything these targets created
	rm -rf $(VENV) .venv-* dist site demo-shop big-logs trust-journal .pytest_cache .ruff_cache .hypothesis .import_linter_cache

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
