# Everything works from a fresh clone: each target makes the environment it needs, once.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed

.PHONY: demo test test-long test-core check lint types docs dist bench clean

demo: $(INSTALLED)  ## the main job: solve the paper's toy and show what each method finds
	$(BIN)/bvfim demo --out out/demo

test: $(INSTALLED)  ## the fast tests and every example in the docstrings
	$(BIN)/python -m pytest -q -n 2 --dist worksteal

test-long: $(INSTALLED)  ## the tests that take seconds each: experiments, commands, hard problems
	$(BIN)/python -m pytest -q -n 2 --dist worksteal -m "long and not slow"

test-core: $(INSTALLED)  ## the solver in an environment that has nothing but what the solver needs
	$(BIN)/python tests/core_alone.py

check: lint  ## what CI runs; what has one process takes turns with what else has
	$(MAKE) -j 2 types dist test-core
	$(MAKE) test docs test-long

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(INSTALLED)
	$(BIN)/mypy

docs: $(INSTALLED)  ## the site, in docs/_build/html: every notebook runs, and a warning is an error
	$(BIN)/python -m sphinx -W --keep-going -q -j 2 -b html docs docs/_build/html

dist: $(INSTALLED)  ## the wheel and the source distribution, checked, and the README's lines with the wheel alone
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/python -m twine check --strict dist/*
	$(BIN)/python tests/wheel_alone.py dist/*.whl

bench: $(INSTALLED)  ## speed, as ratios inside one run
	$(BIN)/bvfim bench speed --out out/bench

clean:
	rm -rf $(VENV) out docs/_build build dist *.egg-info

$(INSTALLED): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@
