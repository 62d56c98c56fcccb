# Two commands on a fresh machine: `make audit` and `make test`. Each makes its own virtual environment first.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ECOSYSTEM := .ecosystem
OUT ?= shiftproof-audit
PYTEST_OPTIONS ?= -n 2 --dist worksteal
KILLS ?= 200
FUZZ_SECONDS ?= 120

# pip would compile some 19,000 modules, most of which are never imported; the others are compiled, and kept, as they are.
INSTALL := $(BIN)/python -m pip install --quiet --no-compile
export PYTHONDONTWRITEBYTECODE :=

PYTEST ?= $(BIN)/pytest

.PHONY: audit test checks lint docs pytest coverage test-thorough test-slow test-oldest survive fuzz ecosystem ecosystem-environment browser wheel sbom clean help

help:
	@echo "make audit      install, audit the embedded demo, print where the report is"
	@echo "make test       install, then linters, types, architecture, docs and all tests"
	@echo "make test-slow  the checks that take minutes"
	@echo "make test-thorough  all tests, with ten times as many random examples"
	@echo "make coverage   all tests, with the share of lines and branches that they run, and coverage.xml"
	@echo "make wheel      build sdist and wheel into dist/, and try the wheel in an environment of its own"
	@echo "make sbom       list what the wheel brings with it, as CycloneDX JSON, beside it"
	@echo "make ecosystem  models and data of other packages, in an environment of their own (several GB)"
	@echo "make survive    kill every verb in every way there is, KILLS=200 times, and compare the results"
	@echo "make fuzz       damaged files for every parser, FUZZ_SECONDS=120 each"
	@echo "make clean      remove the virtual environment and everything built"

audit: $(VENV)/installed
	$(BIN)/shiftproof audit --model demo --data demo --out $(OUT)

test: checks browser pytest

# Each keeps one core busy, so both are done at a time.
checks: $(VENV)/developing
	$(MAKE) --jobs=2 lint docs

lint: $(VENV)/developing
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/codespell README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md docs src examples benchmarks
	$(BIN)/mypy --strict

docs: $(VENV)/developing
	$(BIN)/sphinx-build --fail-on-warning --fresh-env --quiet docs docs/_build/html

# Browser tests need Chromium. Where it is missing, root on a Debian system installs it; elsewhere they are skipped.
browser:
	@if command -v chromium >/dev/null; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "installing chromium for the browser tests"; \
		{ apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium; } >/dev/null \
		|| echo "chromium could not be installed; the browser tests will be skipped"; \
	else echo "no chromium, and no way to install it; the browser tests will be skipped"; fi

# Two test processes with one thread each: more threads than cores would wait for each other. Memory that tensors were in
# is kept and not given back each time: to take it again costs a third of the time of tests of large images.
MEMORY := MALLOC_MMAP_THRESHOLD_=1073741824 MALLOC_TRIM_THRESHOLD_=2147483648 MALLOC_TOP_PAD_=67108864

pytest: $(VENV)/developing
	$(MEMORY) OMP_NUM_THREADS=1 $(BIN)/pytest $(PYTEST_OPTIONS) -m "not slow"

# pyproject.toml has what is measured: commands and workers that are processes of their own too.
coverage: $(VENV)/developing browser
	$(MEMORY) OMP_NUM_THREADS=1 $(BIN)/pytest $(PYTEST_OPTIONS) -m "not slow" \
		--cov --cov-report=xml --cov-report=term:skip-covered

# The oldest versions that are supported: PYTEST is that of an environment made with tests/oldest.txt, as ci.yml makes it.
# It has no browser; tests of what is not installed skip themselves.
test-oldest:
	$(PYTEST) -m "not slow" --ignore=tests/browser --ignore=tests/ecosystem --ignore=tests/fuzz --ignore=tests/parity

# The properties of the fast tests on ten times as many random examples.
test-thorough: $(VENV)/developing
	OMP_NUM_THREADS=1 SHIFTPROOF_EXAMPLES=thorough $(BIN)/pytest $(PYTEST_OPTIONS) -m "not slow"

test-slow: $(VENV)/developing
	OMP_NUM_THREADS=1 $(BIN)/pytest $(PYTEST_OPTIONS) --dist loadfile -m slow

# What survives: every executor gives the same results, and kills, signals, full disks and second drivers lose nothing.
survive: $(VENV)/developing
	OMP_NUM_THREADS=1 SHIFTPROOF_KILLS=$(KILLS) SHIFTPROOF_STOP=60 $(BIN)/pytest -m slow tests/runs

# Whatever is in a file, there is a result or an error that says what to do. What was found once is kept and tried first.
fuzz: $(VENV)/developing
	OMP_NUM_THREADS=1 SHIFTPROOF_FUZZ_SECONDS=$(FUZZ_SECONDS) $(BIN)/pytest $(PYTEST_OPTIONS) -m slow tests/fuzz

# The real packages that people bring their models and data from, in an environment of their own.
ecosystem: ecosystem-environment
	OMP_NUM_THREADS=1 $(ECOSYSTEM)/bin/pytest -W default tests/ecosystem

ecosystem-environment: $(ECOSYSTEM)/installed

$(ECOSYSTEM)/installed: pyproject.toml tests/ecosystem/requirements.txt
	$(PYTHON) -m venv $(ECOSYSTEM)
	$(ECOSYSTEM)/bin/python -m pip install --quiet --requirement tests/ecosystem/requirements.txt --editable .
	@touch $@

# The sdist, the wheel built from it, and that one compared with the wheel built from the checkout; then the wheel alone, in
# an environment of its own and away from the checkout, audits the demo.
wheel: $(VENV)/developing
	rm -rf dist build
	$(BIN)/python -m build --outdir dist
	$(BIN)/python -m build --wheel --outdir build/checkout
	$(BIN)/python .ci/same_wheel.py dist/*.whl build/checkout/*.whl
	$(PYTHON) -m venv build/fresh
	build/fresh/bin/python -m pip install --quiet --constraint constraints.txt dist/*.whl
	cd build && fresh/bin/shiftproof audit --model demo --data demo --out audit --images 100 --sections clean,corruptions

# What a user gets who installs the wheel: every package with its version and licence. Where the wheel lay on the machine
# that built it (direct_url.json) is left out.
sbom: wheel
	rm -f build/fresh/lib/python*/site-packages/shiftproof-*.dist-info/direct_url.json
	$(PYTHON) -m venv build/sbom
	build/sbom/bin/python -m pip install --quiet 'cyclonedx-bom==7.*'
	build/sbom/bin/cyclonedx-py environment --output-reproducible --of JSON -o dist/shiftproof.cdx.json build/fresh/bin/python

clean:
	rm -rf $(VENV) $(ECOSYSTEM) docs/_build build dist coverage.xml .coverage* src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or newer is needed; say which with: make PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) --constraint constraints.txt --editable .
	@touch $@

$(VENV)/developing: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) --constraint constraints.txt --editable '.[dev]'
	@touch $@ $(VENV)/installed
