# `make` alone explains the targets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUN := runs/demo
export OMP_NUM_THREADS ?= 2

.DEFAULT_GOAL := help
.PHONY: help venv demo test check format types bench docs generate clean

help: ## print this list
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/  make \1\t\2/' | expand -t 18

venv: $(VENV)/ready ## create .venv with everything for development

$(VENV)/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: venv ## train on glyph images, score on glyph classes never seen, write the report
	@rm -rf $(RUN)
	$(BIN)/nearfar train glyphs --recipe characters/glyphs --out $(RUN)
	$(BIN)/nearfar report $(RUN)

test: venv ## run every test
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile

check: venv ## format, lint, types and the fast tests: every commit passes this
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python tools/generate.py --check
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile -q -m 'not slow'

format: venv ## format the code and mend what the linter can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

generate: venv ## write what follows from the catalogue: __init__.pyi and the table of the README
	$(BIN)/python tools/generate.py

bench: venv ## run the benchmarks beside the published peers (minutes)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[bench]'
	for file in bench/*.py; do $(BIN)/python $$file; done

docs: venv ## build the documentation into docs/_build
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[docs]'
	$(BIN)/sphinx-build -q -W docs docs/_build

clean: ## remove .venv, caches and built files
	rm -rf $(VENV) build dist docs/_build docs/gallery docs/reference .pytest_cache .mypy_cache .ruff_cache .hypothesis
