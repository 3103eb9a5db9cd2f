# Holdfast needs only make and a bare Python 3.11 or newer with pip, and for its tests on Restate npm;
# the rest is installed, pinned by hash, into environments of its own. A stamp file in each says
# what it was made from, so nothing is installed twice.

# Another Python than the default has environments of its own: make test PYTHON=python3.13
PYTHON     ?= python3
VERSION    := $(shell $(PYTHON) -c 'import sys; print(sys.version.split()[0])' 2>/dev/null)
OTHER       = $(if $(filter-out python3,$(PYTHON)),-$(VERSION))
VENV       ?= .venv$(OTHER)
VENV_BENCH ?= .venv-bench$(OTHER)
VENV_DIST  ?= .venv-dist$(OTHER)
UV         ?= uv
# Tests wait more than they compute: for disks, servers, and processes that are killed.
AT_ONCE    ?= 4
ENGINE     ?= temporal
ARGS       ?=

# The environments have no pip of their own: it would take longer to make than to borrow.
PIP   = $(PYTHON) -m pip --python
QUIET = -qq --no-input --disable-pip-version-check
CODE  = $(wildcard src tests examples bench)

# Tests start hundreds of processes, which need not compile Holdfast each; but what they write as
# they go, and change within a second, must not be taken from a cache.
PYTEST = PYTHONDONTWRITEBYTECODE=1 $(VENV)/bin/python -m pytest -n $(AT_ONCE)

define compile
	@env -u PYTHONDONTWRITEBYTECODE $(VENV)/bin/python -m compileall -q $(CODE)
endef

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help demo engine test test-all thorough torture mutants check docs web dist screenshots bench pins clean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(VENV)/.run-stamp  ## run the example trip, crash and all
	@$(VENV)/bin/python -m examples.trip $(ARGS)

# Both come with the tools for tests: clients, and the programs of the servers.
engine: $(VENV)/.dev-stamp $(if $(filter restate,$(ENGINE)),$(VENV)/.restate-stamp)  ## start Temporal with a sample agent; ENGINE=restate, ARGS=--once to end by itself
	@$(VENV)/bin/python -m examples.cluster $(ENGINE) $(ARGS)

test: $(VENV)/.dev-stamp $(VENV)/.restate-stamp web/node_modules/.stamp tests/protocol/node_modules/.stamp  ## run the tests; ARGS="-k name" or ARGS="-n0 tests/test_x.py" to choose
	$(compile)
	@$(PYTEST) $(ARGS) || $(PYTHON) .ci/again.py $$? $(VENV)/bin/python

# Each version once, the newest build of it; pyenv's too. What a version can't install is said, and the
# others go on.
PYTHONS ?= $(shell $(PYTHON) .ci/pythons.py)
test-all:  ## run the tests on every Python from 3.11 on that is found here; PYTHONS="…" to choose
	@test -n "$(PYTHONS)" || { echo "no Python from 3.11 on was found" >&2; exit 1; }
	@failed=""; for python in $(PYTHONS); do \
	  echo "== $$python: $$($$python -V 2>&1)"; \
	  $(MAKE) test PYTHON=$$python || failed="$$failed $$python"; \
	done; test -z "$$failed" || { echo "failed on:$$failed" >&2; exit 1; }

# By default tests that kill a process at every boundary, or flip every bit, do so at some of them.
thorough: $(VENV)/.dev-stamp $(VENV)/.restate-stamp web/node_modules/.stamp tests/protocol/node_modules/.stamp  ## run the tests, and try everything where `test` tries a part
	$(compile)
	@HOLDFAST_THOROUGH=1 $(PYTEST) --timeout 3000 $(ARGS)

# As root it cuts the power of file systems of its own; it installs the programs for that if it can.
torture: $(VENV)/.dev-stamp  ## try to lose data, for long; SEED=7 MINUTES=30 to choose
	@.ci/tools
	@mkdir -p build
	@$(VENV)/bin/python -m tests.torture --json build/torture.json \
	  $(if $(SEED),--seed $(SEED)) $(if $(MINUTES),--minutes $(MINUTES)) $(ARGS)

# The first run also finds out which tests run which lines, and keeps that in build/.
mutants: $(VENV)/.dev-stamp  ## change the core at random and see whether a test notices; SEED=7 COUNT=100
	@mkdir -p build
	@$(VENV)/bin/python -m tests.mutants --json build/mutants.json \
	  $(if $(SEED),--seed $(SEED)) $(if $(COUNT),--count $(COUNT)) $(ARGS)

check: $(VENV)/.dev-stamp  ## check format, lint and types
	@$(VENV)/bin/python -m ruff format --check $(CODE)
	@$(VENV)/bin/python -m ruff check $(CODE)
	@$(VENV)/bin/python -m mypy $(CODE)

# Nothing is fetched. A warning, such as a link that leads nowhere, is an error.
docs: $(VENV)/.docs-stamp  ## build the documentation site into build/site
	@$(VENV)/bin/python docs/diagrams.py
	@$(VENV)/bin/python -m sphinx -q -E -W --keep-going -j 2 docs build/site
	@echo "open build/site/index.html"

dist: $(VENV_DIST)/.dist-stamp  ## build the wheel and the sdist into dist/, checked, with sums and a bill of materials
	@$(VENV_DIST)/bin/python .ci/dist.py $(VENV_DIST)/bin/python dist

# The page is shipped built, so that users need no Node. A test compares what it was built from with
# the sources, and fails if they differ.
web: web/node_modules/.stamp  ## rebuild the debugger's page (needs npm)
	@test -e $< || { echo "The page is built with npm, which could not install its tools." >&2; exit 1; }
	@cd web && npm run --silent build

screenshots: $(VENV)/.dev-stamp  ## make the pictures of the debugger anew (needs chromium)
	@$(VENV)/bin/python -m tests.web.pictures $(ARGS)

# Peers and Holdfast alike are measured with their bytecode cached, as users run them.
bench: $(VENV_BENCH)/.bench-stamp $(VENV_BENCH)/.restate-stamp  ## measure Holdfast against its peers
	@env -u PYTHONDONTWRITEBYTECODE $(VENV_BENCH)/bin/python -m bench $(ARGS)

# dev comes first: the others keep to its versions.
pins:  ## recompile requirements/*.txt (needs uv); ARGS=--upgrade for newer versions
	@for name in dev run docs bench dist; do \
	  echo "pinning requirements/$$name.txt"; \
	  $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	    --no-annotate \
	    --custom-compile-command 'make pins' $(ARGS) \
	    requirements/$$name.in -o requirements/$$name.txt || exit 1; \
	done

clean:  ## remove the environments and every cache
	@rm -rf .venv .venv-* $(VENV) $(VENV_BENCH) web/node_modules tests/protocol/node_modules build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@find $(CODE) -name __pycache__ -type d -prune -exec rm -rf {} +

define need_python
	@command -v $(PYTHON) >/dev/null || { \
	  echo "Holdfast needs Python 3.11 or newer, and there is no '$(PYTHON)' here." \
	    "Name one: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Holdfast needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) -V 2>&1)." \
	    "Name a newer one: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -m pip --version >/dev/null 2>&1 || { \
	  echo "'$(PYTHON)' has no pip, which installs what Holdfast needs." \
	    "Install pip for it, or name another: make PYTHON=python3.12" >&2; exit 1; }
endef

# The files name everything that is needed, so pip resolves nothing: where one package asks for another
# with an extra, pip would look for a newer one, without a hash.
# $(call install,<environment>,<requirements name>)
define install
	@echo "installing requirements/$(2).txt into $(1)"
	@$(PIP) $(1)/bin/python install $(QUIET) --require-hashes --no-deps -r requirements/$(2).txt
	@echo "installing holdfast into $(1)"
	@$(PIP) $(1)/bin/python install $(QUIET) --no-deps --no-build-isolation -e .
	@touch $@
endef

# An environment that another Python made is not used: it is made anew, without any stamp.
%/.made-by-$(VERSION):
	$(need_python)
	@echo "making $* with Python $(VERSION)"
	@$(PYTHON) -m venv --without-pip --clear $*
	@touch $@

$(VENV)/.run-stamp: $(VENV)/.made-by-$(VERSION) requirements/run.txt pyproject.toml
	$(call install,$(VENV),run)

$(VENV)/.dev-stamp: $(VENV)/.made-by-$(VERSION) requirements/dev.txt pyproject.toml
	$(call install,$(VENV),dev)

$(VENV)/.docs-stamp: $(VENV)/.dev-stamp requirements/docs.txt
	$(call install,$(VENV),docs)

$(VENV_DIST)/.dist-stamp: $(VENV_DIST)/.made-by-$(VERSION) requirements/dist.txt
	@echo "installing requirements/dist.txt into $(VENV_DIST)"
	@$(PIP) $(VENV_DIST)/bin/python install $(QUIET) --require-hashes --no-deps -r requirements/dist.txt
	@touch $@

$(VENV_BENCH)/.bench-stamp: $(VENV_BENCH)/.made-by-$(VERSION) requirements/bench.txt pyproject.toml
	$(call install,$(VENV_BENCH),bench)

# No stamp where it can't be had: the tests that need it are skipped, and the next run tries again.
%/.restate-stamp: .ci/restate-server
	@.ci/restate-server $*/bin && touch $@ || true

# Tools of the page, and what its tests check it with; users need neither. `npm ci` would refuse a lock
# file without the tools' builds for platforms that a registry does not have; this installs what the
# lock file names, checked by its sums, and leaves the file alone.
web/node_modules/.stamp: web/package.json web/package-lock.json
	@cd web && npm install --no-save --silent --no-progress --fetch-retries 1 && touch node_modules/.stamp || \
	  echo "npm could not install the tools of the page: tests that need them are skipped" >&2

# The conformance suite and the inspector of the Model Context Protocol, for the tests of MCP.
tests/protocol/node_modules/.stamp: tests/protocol/package.json tests/protocol/package-lock.json
	@cd tests/protocol && npm install --no-save --silent --no-progress --fetch-retries 1 --ignore-scripts && \
	  touch node_modules/.stamp || \
	  echo "npm could not install the tools of the protocol: tests that need them are skipped" >&2
