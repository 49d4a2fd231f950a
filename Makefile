# Two commands do everything: `make demo` (the main job on real input) and `make test` (every check).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo cluster-demo test check format docs clean

demo: $(VENV)/.demo
	$(BIN)/pointsman demo

cluster-demo: $(VENV)/.dev  ## the demo's data on three real OpenSearch nodes, one of them killed; needs Java and Maven
	test -d demo-workspace || $(BIN)/pointsman demo
	$(BIN)/python benchmarks/cluster_demo.py

test: $(VENV)/.dev $(VENV)/.browser
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.dev  ## write the commands' help pages and the OpenAPI description into docs
	$(BIN)/python tests/test_docs.py
	$(BIN)/python tests/test_openapi.py

# The console is tested in a real browser; where none can be installed those tests are skipped, and say so.
$(VENV)/.browser: $(VENV)/bin/python
	@command -v chromium > /dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null \
		&& apt-get update -qq && apt-get install -qq -y --no-install-recommends chromium > /dev/null; } \
		|| echo "no Chromium here: the tests of the console will be skipped"
	touch $@

clean:
	rm -rf $(VENV) demo-workspace .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[server]'
	touch $@

$(VENV)/.dev: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@ $(VENV)/.demo
