# Two commands do everything on a machine with Python 3.11+ and make:
#   make demo   set up, then teach a small language model to add with GRPO and write a report (about two minutes)
#   make test   set up, then run every check
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

export OMP_NUM_THREADS ?= 1

.PHONY: demo test install bubblewrap lint types layers unit explore docs page format clean
.DEFAULT_GOAL := help

help:
	@sed -n 's/^#   //p' Makefile

demo: install
	$(BIN)/groupwise demo

test: install lint types layers unit

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Groupwise needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.12 install"; exit 1; }
	@echo "Setting up $(VENV): this takes a minute or two, once."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check --progress-bar off -q -c constraints.txt -e '.[dev]'
	$(BIN)/python -m compileall -q -j 0 $(VENV)/lib >/dev/null || true
	@$(MAKE) -s bubblewrap
	@touch $@

# The second tier of the sandbox. Where it cannot be installed, its tests are skipped with a reason.
bubblewrap:
	@command -v bwrap >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
	  && { apt-get install -y -qq bubblewrap || { apt-get update -qq && apt-get install -y -qq bubblewrap; }; } >/dev/null 2>&1; } \
	  || echo "No bubblewrap: the second tier of the sandbox is not available here. Debian: apt-get install bubblewrap"

lint:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types:
	$(BIN)/mypy

layers:
	$(BIN)/lint-imports

unit:
	$(BIN)/python -m pytest -n 2 --dist loadfile

# Property tests draw the same examples every time under `make test`; here they draw new ones.
explore:
	HYPOTHESIS_PROFILE=explore $(BIN)/python -m pytest -n 2 --dist loadfile $$(grep -rl hypothesis tests --include='test_*.py')

docs:
	$(BIN)/python -m groupwise.config > docs/reference/config.md

# The page's bundle is committed; only who changes dashboard/ needs Node 20 and this.
page: install
	cd dashboard && npm ci && PYTHON=../$(BIN)/python npm run types && npm run check && npm run build

format:
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
