# `make` alone says what there is. demo and test set up what they need on a fresh machine.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SITE_STAMP := $(VENV)/.installed-docs

.DEFAULT_GOAL := help

help: ## what there is
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-12s %s\n", $$1, $$2}'

$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $(STAMP)

install: $(STAMP) ## an environment with npuconv and what its development needs

demo: $(STAMP) ## convert a sample with its calibration data and show the report
	@mkdir -p build/demo
	$(BIN)/npuconv convert samples/digits/model.onnx \
	  --calibration samples/digits/calibration.npz -o build/demo/digits.npu.onnx
	@echo "The report for a browser: build/demo/digits.npu.report.html"

test: $(STAMP) ## lint, types, layers, documentation, and all tests; coverage of the fast ones
	@$(MAKE) --no-print-directory lint type layers docs-check
	$(BIN)/pytest -n auto -m 'not e2e' --cov --cov-report=term
	$(BIN)/pytest -n auto -m e2e

unit: $(STAMP) ## the fast tests only
	$(BIN)/pytest -n auto -m 'not e2e'

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

cov: $(STAMP) ## coverage, line by line
	$(BIN)/pytest -n auto --cov --cov-report=term-missing

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

bench: $(STAMP) ## times and memory as ratios to bare onnxruntime, and accuracy
	$(BIN)/python benchmarks/speed.py
	$(BIN)/python benchmarks/check_scaling.py
	$(BIN)/python benchmarks/check_many.py samples
	$(BIN)/python benchmarks/calibration.py
	$(BIN)/python benchmarks/jobs_at_once.py
	$(BIN)/python benchmarks/accuracy.py
	$(BIN)/python benchmarks/budget.py

build: $(STAMP) ## a wheel and a source archive
	$(BIN)/pip install --quiet build
	$(BIN)/python -m build

clean: ## remove what the other targets made
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage*

.PHONY: help install demo test unit lint format type layers check cov docs reference site docs-check samples bench build clean
