# Two commands do everything: `make demo` (the main job on real input) and `make test` (every check).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Images of Python often set it; then each of the many processes of the tests would compile every module again.
unexport PYTHONDONTWRITEBYTECODE
INSTALL := apt-get install -qq -y --no-install-recommends
CHROMA := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/pointsman-tests/chroma-1.5

# Installs what the development environment needs, many times as fast as pip, which brings it.
UV := $(BIN)/uv
# It reads no settings of pip: whoever names a mirror to pip by this variable means both.
ifdef PIP_INDEX_URL
export UV_DEFAULT_INDEX ?= $(PIP_INDEX_URL)
endif

# Installing waits for the network, and mypy uses one core: they run beside each other and beside the tests.
MAKEFLAGS += --jobs=3

.PHONY: demo cluster-demo frameworks test style types tests format docs site constraints clean

demo: $(VENV)/.demo
	$(BIN)/pointsman demo

cluster-demo: $(VENV)/.dev  ## the demo's data on three real OpenSearch nodes, one of them killed; needs Java and Maven
	test -d demo-workspace || $(BIN)/pointsman demo
	$(BIN)/python benchmarks/cluster_demo.py

test: style types tests

style: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: style
	$(BIN)/mypy
	$(BIN)/lint-imports

tests: style $(VENV)/.browser $(CHROMA)/complete
	$(BIN)/pytest --collect-only -qq > /dev/null || true  # compiles modules once, not in every process; errors show below
	$(BIN)/pytest --numprocesses 4 --dist loadgroup --no-loadscope-reorder

frameworks:  ## the frameworks' suites at the oldest and newest supported versions, in environments of their own
	$(PYTHON) benchmarks/frameworks.py

site: $(VENV)/.dev  ## the documentation as a web site, in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.dev  ## write the help pages, the settings, the OpenAPI description and the layers into docs
	$(BIN)/python tests/test_docs.py
	$(BIN)/python tests/test_openapi.py
	$(BIN)/python tests/test_architecture.py

# The console is tested in a real browser; where none can be installed those tests are skipped, and say so. The shell is
# Chromium without its own windows, which took most of the time of a page.
$(VENV)/.browser: $(VENV)/bin/python
	@command -v chromium-headless-shell > /dev/null || command -v chromium > /dev/null \
		|| { [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null && apt-get update -qq \
		&& { $(INSTALL) chromium-headless-shell > /dev/null 2>&1 || $(INSTALL) chromium > /dev/null; }; } \
		|| echo "no Chromium here: the tests of the console will be skipped"
	touch $@

# Chroma takes 500 MB and pins packages of its own, so it lives in a virtual environment of its own.
$(CHROMA)/complete: | $(UV)
	@{ $(PYTHON) -m venv --without-pip $(CHROMA) && $(UV) pip install --quiet --python $(CHROMA)/bin/python \
		'chromadb>=1.5,<1.6' && touch $@; } || echo "no Chroma here: its tests will be skipped"

constraints: $(UV)  ## choose the newest versions that pyproject.toml allows: every clone gets those that were tested
	$(UV) pip compile --quiet --upgrade --universal --fork-strategy fewest --python-version 3.11 --no-annotate --no-header \
		--extra dev --output-file $(VENV)/constraints pyproject.toml
	sed 's/ *;.*//' $(VENV)/constraints > constraints.txt

clean:
	rm -rf $(VENV) demo-workspace site .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(UV): $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt uv

$(VENV)/.demo: $(UV) pyproject.toml constraints.txt
	$(UV) pip install --quiet --python $(BIN)/python --constraint constraints.txt --editable '.[server]'
	touch $@

$(VENV)/.dev: $(UV) pyproject.toml constraints.txt
	$(UV) pip install --quiet --python $(BIN)/python --constraint constraints.txt --editable '.[dev]'
	touch $@ $(VENV)/.demo
