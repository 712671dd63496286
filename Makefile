# `make` alone says what there is. demo and test set up what they need on a fresh machine.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# A few tests at a time, so that the processes end together.
PYTEST := $(BIN)/pytest -n auto --maxschedchunk 4
# Each run would else compile all tests anew, which takes longer than most of them.
export PYTHONDONTWRITEBYTECODE :=
# Tests and benchmarks also import onnxruntime by itself.
export ORT_DISABLE_TELEMETRY := 1
SITE_STAMP := $(VENV)/.installed-docs

.DEFAULT_GOAL := help

help: ## what there is
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-15s %s\n", $$1, $$2}'

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@$(BIN)/python -m compileall -q src
	@touch $(STAMP)

install: $(STAMP) ## an environment with npuconv and what its development needs

demo: $(STAMP) ## convert a sample with its calibration data and show the report
	@mkdir -p build/demo
	$(BIN)/npuconv convert samples/digits/model.onnx \
	  --calibration samples/digits/calibration.npz -o build/demo/digits.npu.onnx
	@echo "The report for a browser: build/demo/digits.npu.report.html"

test: $(STAMP) ## lint, types, layers, documentation, and all tests but those of make sweep
	@$(MAKE) --no-print-directory --jobs=5 lint type layers docs-check pytest

pytest: $(STAMP)
	$(PYTEST)

unit: $(STAMP) ## the fast tests only
	$(PYTEST) -m 'not e2e'

# Emulated, a processor with AVX2 and without VNNI and AVX-512; some ten times slower.
EMULATED := qemu-x86_64 -cpu max $(BIN)/python
other-processor: $(STAMP) ## tests of integers where 16-bit sums saturate, as on x86 without VNNI
	@if [ "$$(uname -m)" != x86_64 ] || ! command -v qemu-x86_64 > /dev/null; then \
	  echo "qemu-x86_64 (qemu-user on x86-64) is missing: no test runs on another processor"; \
	else \
	  $(BIN)/pytest --dist load --maxschedchunk 4 --tx '2*popen//python=$(EMULATED)' \
	    -k 'not test_contracts or changes_no_number' tests/test_contracts.py \
	    tests/model/test_integer_products.py tests/conversion/test_quantized_models.py \
	    tests/cli/test_verify.py; \
	fi

sweep: $(STAMP) ## what make test has no time for: the largest models, more random graphs
	$(PYTEST) -m sweep
	FITTING=64 GRAPHS=4 $(PYTEST) --hypothesis-profile=sweep tests/properties

OLDEST ?= .venv-oldest
test-oldest: ## the fast tests with the oldest versions that pyproject.toml allows
	$(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/pip install --quiet --disable-pip-version-check \
	  --constraint constraints/oldest.txt --editable '.[dev]'
	$(OLDEST)/bin/pytest -n auto -m 'not e2e' --cache-clear

test-newest: ## the same with the newest that there are
	$(PYTHON) -m venv --clear .venv-newest
	.venv-newest/bin/pip install --quiet --disable-pip-version-check --upgrade --editable '.[dev]'
	.venv-newest/bin/pytest -n auto -m 'not e2e' --cache-clear

audit: $(STAMP) ## known weaknesses of what is installed; asks a server, so it is no test
	$(BIN)/pip install --quiet --disable-pip-version-check pip-audit
	$(BIN)/pip-audit --local --skip-editable

lint: $(STAMP) ## style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(STAMP) ## put the style right
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

type: $(STAMP) ## types
	$(BIN)/mypy

layers: $(STAMP) ## which module may import which
	$(BIN)/lint-imports

check: lint type layers docs-check unit ## everything quick

cov: $(STAMP) ## coverage, line by line; fails below 95 %
	$(PYTEST) --cov --cov-report=term-missing

docs: reference site ## the reference pages, and the site of all pages

reference: $(STAMP) ## write the reference pages and schemas anew
	$(BIN)/python tools/gendocs.py
	$(BIN)/python tools/gen_operators.py

$(SITE_STAMP): pyproject.toml $(STAMP)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@touch $(SITE_STAMP)

site: $(SITE_STAMP) ## the documentation as a site: build/site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

docs-check: $(STAMP) ## are the reference pages and schemas up to date
	$(BIN)/python tools/gendocs.py --check

samples: $(STAMP) ## train the sample models anew
	$(BIN)/python tools/make_samples.py

bench: $(STAMP) ## times and memory as ratios, limits of chips, and accuracy
	$(BIN)/python benchmarks/speed.py
	$(BIN)/python benchmarks/targets.py limits samples/*/model.onnx
	$(BIN)/python benchmarks/accuracy.py models

SETS ?= build/zoo/sets
ablation: $(STAMP) ## effect of each step of quantization, on models from packages as well
	$(BIN)/python benchmarks/ablation.py collect --sets $(SETS)
	$(BIN)/python benchmarks/ablation.py steps --sets $(SETS)

SECONDS ?= 60
CASES ?= 2000
robustness: $(STAMP) ## hostile and mutated files, odd models and networks, kills, a model of 3 GB
	@$(BIN)/python -c "import atheris" 2> /dev/null || \
	  $(BIN)/pip install --quiet --disable-pip-version-check --editable '.[fuzz]' || true
	$(BIN)/python benchmarks/robustness.py hostile
	$(BIN)/python benchmarks/robustness.py fuzz --seconds $(SECONDS)
	$(BIN)/python benchmarks/robustness.py models --cases $(CASES)
	$(BIN)/python benchmarks/robustness.py networks --cases $(CASES)
	$(BIN)/python benchmarks/robustness.py kills
	$(BIN)/python benchmarks/robustness.py size

VELA_VENV ?= .venv-vela
MODELS ?= $(wildcard ../shared/models/*/model.onnx)
runtimes: $(STAMP) ## layers and files on other runtimes and Arm's Vela: docs/runtimes.md
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[runtimes,litert]'
	$(BIN)/pytest -n auto -m '' tests/e2e/test_runtimes.py tests/evaluate/test_litert.py tests/emit/tflite
	$(BIN)/python benchmarks/targets.py runtimes $(MODELS)
	$(PYTHON) -m venv $(VELA_VENV)
	$(VELA_VENV)/bin/pip install --quiet --disable-pip-version-check --editable '.[litert]' \
	  ethos-u-vela pytest
	$(VELA_VENV)/bin/python benchmarks/targets.py tflite $(MODELS)

vendors: $(STAMP) ## verdicts of QNN and RKNN-Toolkit2 on converted models: docs/verify.md
	$(BIN)/python benchmarks/targets.py vendors

build: $(STAMP) ## a wheel and a source archive
	$(BIN)/pip install --quiet build
	$(BIN)/python -m build

clean: ## remove what the other targets made
	rm -rf $(VENV) $(OLDEST) $(VELA_VENV) .venv-newest build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage*

.PHONY: help install demo test pytest unit other-processor sweep lint format type layers check cov docs reference site docs-check samples bench ablation robustness runtimes vendors test-oldest test-newest audit build clean
