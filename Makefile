# `make` alone explains the targets.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUN := runs/demo
# Compiled tests are kept: to compile them again takes each process of pytest half a minute. A process that has run its
# half of the tests takes over half of what the other has left, so that both end together.
PYTEST := OMP_NUM_THREADS=1 PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 2 --dist worksteal
# no learner warns without a cause that its test expects; on which step a search stops early depends on the processor
WARNINGS := $(foreach kind,User Runtime Future,-W error::$(kind)Warning) -W default::sklearn.exceptions.ConvergenceWarning \
  -W default::pytest.PytestUnraisableExceptionWarning
NUMERICAL := tests/estimators tests/evaluation tests/neighbors tests/numerics tests/probabilistic tests/spectral
VISION := build/vision
ZOO ?= digits glyphs
ATLAS ?= digits glyphs
WITH_VISION := tests/deep/test_folding.py tests/deep/test_foreign_trunks.py tests/deep/test_peft_folders.py $(patsubst %,tests/train/test_%.py,defaults foreign_runs grocery ladder tuning)
export OMP_NUM_THREADS ?= 2

.DEFAULT_GOAL := help
.PHONY: help venv demo test test-fast test-method test-haswell test-vision test-gpu gpu-check test-matrix static lint types check format bench bench-quick zoo atlas docs generate changelog dist clean

help: ## print this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

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

test: venv ## run every test, and list those that took the most processor time
	$(PYTEST) --costs 20

# an id such as [small-TripletLoss] names the method between brackets or hyphens: SoftmaxTripletLoss is another one
OF_METHOD = [$(METHOD)] or [$(METHOD)- or -$(METHOD)- or -$(METHOD)]
test-method: venv ## run the tests of one method, and those of the lists that name it: make test-method METHOD=TripletLoss
	$(BIN)/python -m pytest -q -k '$(OF_METHOD) or test_structure and not lives_where and not neither_torch or test_links and every_method or generated_files' tests/test_losses.py tests/test_learners.py tests/deep/test_miners.py tests/test_structure.py tests/test_links.py tests/test_readme.py

test-haswell: venv ## run the numerical tests with the kernels of processors without AVX-512, and with warnings as errors
	OPENBLAS_CORETYPE=Haswell $(PYTEST) -q $(WARNINGS) $(NUMERICAL)

# torchvision demands a torch of its own; without its dependencies it goes beside the one that is installed
test-vision: venv ## run the tests that need timm, torchvision and peft, which the environment leaves out
	test -d $(VISION)/timm || $(BIN)/python -m pip install --quiet --no-deps -c constraints.txt --target $(VISION) torchvision timm peft
	PYTHONPATH=$(CURDIR)/$(VISION) $(PYTEST) -q -m vision $(WITH_VISION)

test-gpu: venv ## run the tests that need a GPU
	$(BIN)/python -m pytest -q -m gpu tests

gpu-check: ## run what only a GPU can show: tests, losses, a training, an evaluation (8 minutes); with PYTHON, no network
	PYTHONPATH=$(CURDIR)/src:$(PYTHONPATH) $(PYTHON) bench/gpu_check.py --out runs/gpu-check

test-matrix: venv ## run tests with the kernels of other processors, and the oldest and newest dependencies (an hour)
	$(BIN)/nox

test-fast: venv
	$(PYTEST) -q -m 'not slow'

static: lint types

lint: venv
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/python tools/generate.py --check

types: venv
	$(BIN)/mypy

# types take one core for a minute, beside the tests
check: lint ## format, lint, types and the fast tests: every commit passes this
	$(MAKE) --no-print-directory --jobs=2 --output-sync=target types test-fast

format: venv ## format the code and mend what the linter can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

generate: venv ## write what follows from the lists of methods and of readers: __init__.pyi, and the table in docs/data.md
	$(BIN)/python tools/generate.py

bench: venv ## run the benchmarks beside the published peers (minutes)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[bench]'
	for file in bench/*.py; do $(BIN)/python $$file; done

bench-quick: venv ## time thirty tasks of this checkout beside the commit where its branch left main (5 minutes)
	$(BIN)/python bench/compare_trees.py

zoo: venv ## compare the default of a training with what is cheaper, on parts of the sets ZOO (15 minutes)
	$(BIN)/python bench/zoo.py $(ZOO) --splits 2 --per-class 20 --most-classes 40 --minutes 1 --hours 0.25 --out runs/zoo $(ZOO_OPTIONS)

atlas: venv ## tell which closed form helps which features, on the sets ATLAS (minutes)
	$(BIN)/python bench/atlas.py $(ATLAS) --held-splits 3 --out runs/atlas

docs: venv ## build the documentation into docs/_build
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[docs]'
	$(BIN)/sphinx-build -q -W docs docs/_build

changelog: venv ## make a section of CHANGELOG.md from changes/; the version is that of src/nearfar/__init__.py
	$(BIN)/towncrier build --yes

dist: venv ## build the wheel and the source archive, and try the wheel in an environment of its own
	$(BIN)/python -m pip install --quiet build
	rm -rf dist
	$(BIN)/python -m build --outdir dist
	$(PYTHON) -m venv build/try
	build/try/bin/python -m pip install --quiet dist/*.whl
	cd build && try/bin/nearfar list LMNN && try/bin/python -c "import nearfar; print(nearfar.__version__, nearfar.LMNN())"

clean: ## remove .venv, caches and built files
	rm -rf $(VENV) build dist docs/_build docs/gallery docs/pictures docs/reference .pytest_cache .mypy_cache .ruff_cache .hypothesis
