# Two targets matter: `make demo` shows it, `make test` tests it. ARGS goes to either:
#   make demo ARGS=--once        make test ARGS="-k replay -x"

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
ARGS   ?=

SOAK_SECONDS ?= 3600

# Where the client's own code is driven. The default build of torch may be large; one for the CPU
# will do:  make test-client TORCH="torch==2.13.0 --index-url ..."
TORCH  ?= torch==2.13.0
CLIENT ?= modelexpress==0.7.0

.PHONY: help demo test test-thorough test-client test-pythons bench soak mutants lint docs screenshots dist tools clean
.DEFAULT_GOAL := help

help:
	@echo "make demo    eight simulated ranks and the exporter (ARGS=--once: one load each;"
	@echo "             ARGS=\"--keep DIR\": the log stays)"
	@echo "make test    the whole suite (MX_TEST_ALL=1: nothing may be left out; MX_TEST_BUSY=3:"
	@echo "             beside three busy loops)"
	@echo "make test-thorough   the same with many more examples and a longer storm of crashes"
	@echo "make bench   the table of docs/performance.md, in ten minutes (ARGS=\"--json FILE\")"
	@echo "make soak    eight ranks at 2,000 events/s for SOAK_SECONDS=3600"
	@echo "make test-client   the real client's code, in an environment with torch"
	@echo "make test-pythons  emitter and core with each other Python that is here"
	@echo "make mutants faults that no test notices, by module (ARGS=ledger: of one)"
	@echo "make lint    ruff and mypy"
	@echo "make dist    a wheel and an sdist in dist/, the same bytes each time"
	@echo "make screenshots   the pictures in docs/images again, by a real browser"
	@echo "make docs    write what is generated in docs/ and deploy/ again"

demo: $(VENV)/.exporter
	@$(BIN)/mx-metrics demo $(ARGS)

test: $(VENV)/.test tools
	$(BIN)/python -m pytest $(ARGS)

test-thorough: $(VENV)/.test tools
	CRASH_SECONDS=60 $(BIN)/python -m pytest --hypothesis-profile thorough $(ARGS)

bench: $(VENV)/.bench
	@tests/support/bring_tools.sh mtail
	@$(BIN)/python -m tests.support.bring_client 0.7.0
	@$(BIN)/python -m tests.benchmarks.bench $(ARGS)

soak: $(VENV)/.test
	SOAK_SECONDS=$(SOAK_SECONDS) $(BIN)/python -m pytest -q -s -o faulthandler_timeout=0 \
	  tests/system/crash/test_soak.py $(ARGS)

test-pythons: $(VENV)/.test
	@$(BIN)/python -m tests.support.pythons

test-client: $(VENV)/.test $(VENV)-client/.made
	$(BIN)/python -m pytest tests/system/client $(ARGS)

mutants: $(VENV)/.mutation
	$(BIN)/python -m tests.mutation.run $(ARGS)

lint: $(VENV)/.test
	$(BIN)/ruff check
	$(BIN)/mypy

screenshots: $(VENV)/.test
	@tests/support/bring_tools.sh chromium
	$(BIN)/python -m tests.support.screenshots

docs: $(VENV)/.test
	$(BIN)/python docs/generate.py
	$(BIN)/python deploy/generate.py

# The time in them is that of the commit, so that whoever builds it gets the same.
dist: $(VENV)-dist/.made
	@rm -rf dist
	@SOURCE_DATE_EPOCH=$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct 2>/dev/null)} && \
	  export SOURCE_DATE_EPOCH=$${SOURCE_DATE_EPOCH:-1577836800} && \
	  $(VENV)-dist/bin/python -m hatchling build -d dist
	@$(VENV)-dist/bin/twine check --strict dist/*
	@grep -q '^Source = .*\.example/' pyproject.toml && echo "note: links lead to a host that is none;\
	 say in pyproject.toml where the project is published" || true

# After the environment, below which the tools are unpacked.
tools: $(VENV)/.test
	@tests/support/bring_tools.sh
	@tests/support/bring_kubectl.sh
	@$(MAKE) -s $(VENV)-dist/.made || echo "twine: could not be brought" >&2

clean:
	rm -rf $(VENV) $(VENV)-* build dist .hypothesis .pytest_cache .mypy_cache .ruff_cache

# The stamps keep the second run quick.
$(VENV)/.exporter: pyproject.toml | $(VENV)/bin/python
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[exporter]'
	@touch $@

$(VENV)/.test: pyproject.toml | $(VENV)/bin/python
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[exporter,test]'
	@touch $@ $(VENV)/.exporter

$(VENV)/.bench: $(VENV)/.test
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[exporter,test,bench]'
	@touch $@

$(VENV)/.mutation: $(VENV)/.test
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[exporter,test,mutation]'
	@touch $@

$(VENV)-client/.made: tests/system/client/requirements.txt | $(VENV)/bin/python
	@echo "making $(VENV)-client"
	@$(PYTHON) -m venv $(VENV)-client
	@$(VENV)-client/bin/python -m pip install -q --disable-pip-version-check $(TORCH)
	@$(VENV)-client/bin/python -m pip install -q --disable-pip-version-check -r $<
	@$(VENV)-client/bin/python -m pip install -q --disable-pip-version-check --no-deps $(CLIENT)
	@touch $@

# Apart from the tests: what twine brings along changes what they see.
$(VENV)-dist/.made: | $(VENV)/bin/python
	@echo "making $(VENV)-dist"
	@$(PYTHON) -m venv $(VENV)-dist
	@$(VENV)-dist/bin/python -m pip install -q --disable-pip-version-check 'hatchling>=1.18' 'twine>=6'
	@touch $@

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
	  || { echo "Python 3.10 or later is needed; say which: make PYTHON=python3.11 ..." >&2; exit 1; }
	@echo "making $(VENV)"
	@$(PYTHON) -m venv $(VENV)
