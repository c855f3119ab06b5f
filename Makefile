# Python 3.11, with the venv module. Another one: make PYTHON=/path/to/python3.11 install
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
# Set where everything in requirements.lock and the project itself are installed.
STAMP := .venv/installed

.PHONY: install demo validate test test-launchers lint format lock clean

install: $(STAMP)

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' \
		|| { echo "error: $(PYTHON) is not Python 3.11: install it, or name it with make PYTHON=..." >&2; exit 2; }
	@echo "Installing the pinned dependencies into .venv (2 GB; minutes where they have to be downloaded)"
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $(STAMP)

demo: install
	$(BIN)/python train.py experiment=sp500

# How often the probes are right: about an hour and a half of processor time, resumable, rewrites docs/validation.md.
# VALIDATE=quick: minutes, writes build/validate/validation.md.
VALIDATE ?= full
validate: install
	$(BIN)/python bench/validate.py $(VALIDATE)

# Everything that CI runs. One thread per worker: two workers with a pool of threads each are slower than two without.
test: lint
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2

# Sweeps through Ray, submitit and Optuna. A plain install leaves them out: they come into a venv of their own, which
# sees the pinned packages of .venv beneath. Not in CI: minutes, and Ray is large.
LAUNCHERS := .venv-launchers
test-launchers: $(LAUNCHERS)/installed
	OMP_NUM_THREADS=1 $(LAUNCHERS)/bin/python -m pytest -m launchers

$(LAUNCHERS)/installed: $(STAMP)
	$(PYTHON) -m venv $(LAUNCHERS)
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
		> $$($(LAUNCHERS)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/pinned.pth
	$(LAUNCHERS)/bin/python -m pip install --quiet --disable-pip-version-check --no-build-isolation \
		--editable '.[ray,optuna,slurm]'
	@touch $@

lint: install
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright
	$(BIN)/lint-imports --no-logo

format: install
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# The newest releases that pyproject.toml allows: what a run needs first, then what the tests add.
LOCK := build/lock
lock:
	rm -rf $(LOCK) && $(PYTHON) -m venv $(LOCK)
	$(LOCK)/bin/pip install --quiet .
	$(LOCK)/bin/pip freeze --all --exclude pip --exclude forecaster | sed 's/+cpu$$//' > $(LOCK)/run
	$(LOCK)/bin/pip install --quiet '.[test]' hatchling editables
	$(LOCK)/bin/pip freeze --all --exclude pip --exclude forecaster | sed 's/+cpu$$//' > $(LOCK)/all
	{ echo "# Made by \`make lock\`: every release that \`make install\` installs. The extras of pyproject.toml are not in it."; \
	  echo; echo "# What a run needs."; cat $(LOCK)/run; \
	  echo; echo "# What building and testing add."; grep -vxFf $(LOCK)/run $(LOCK)/all; } > requirements.lock
	rm -rf $(LOCK)

clean:
	rm -rf .venv $(LAUNCHERS) build dist .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
