# One word each. Everything they need is set up on the first call; a second call finds it and needs no network.
#
#   make demo     the guided tour            make check    format, lint, types, layers, docs
#   make test     the test suite             make bench    the benchmarks
#   make compat   other projects' programs   make soak     the long tests
#   make setup    only what the others need  make clean    remove all that make made
#   make docs     the documentation as a site, build/site
#   make package  a wheel and a source package in dist/ (docs/developing.md)
#   make mutate   mutation testing, of ARGS="'sparklog.txn.*'" or the like (docs/developing.md)
#
# PYTHON=... chooses the interpreter; ARGS=... is handed on, as in: make test ARGS="-k zookeeper".
# Without ARGS suites run in several processes; what ARGS choose runs in one, unless they say -n 3 or the like.

PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; done)
ARGS ?=
# Two more than the two cores that the suite is meant for: much of it is waiting.
WORKERS ?= 4
# Of the peer and the long suite: their tests start clusters, Kafka's and Spark's, and work more than they wait.
HEAVY ?= 2
BIN := .venv/bin
READY := .venv/.ready
COMPILED := .venv/.compiled
# What packages are built with, one environment for each Python. The versions are fixed, for they decide the bytes.
PACKAGING ?= build/packaging
DIST ?= dist
TOOLS = $(PACKAGING)/$(shell $(PYTHON) -c 'import sys; print(sys.implementation.cache_tag)')
PYX := src/sparklog/record/_impl/_codec.pyx $(wildcard src/sparklog/record/_impl/*.pxi)

# The unit tests of the packages that have compiled modules run on the source of these too: what needs it, beside the others
# (these often wait); all of them with the long tests.
PURE := not slow and not peer and not integration and not fuzz
WITH_HOT := tests/test_compiled.py $(addprefix tests/,broker client log net protocol record replica)
NEED_SOURCE = $(shell grep -rl --include='test_*.py' 'mark\.source' tests)
# What mypyc compiles is said in one place.
HOT := $(if $(PYTHON),$(addprefix src/,$(shell $(PYTHON) src/sparklog/compiled.py)))

STUB := src/sparklog/protocol/message_classes.pyi

# The hundreds of Python programs that tests start are compiled once, whatever the environment says.
unexport PYTHONDONTWRITEBYTECODE

# Strict: a dead link or a page that is in no menu ends it.
SITE = NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --config-file conf/site/mkdocs.yml

SUITE = $(BIN)/pytest -m "not slow and not peer" $(1) </dev/null
# Far more examples of each property than the suite draws.
DRAWN = HYPOTHESIS_PROFILE=soak $(BIN)/pytest -q -m "hypothesis and not slow and not peer" --timeout=3600 -n $(HEAVY) </dev/null
ON_SOURCE = SPARKLOG_IMPL=python $(BIN)/pytest -q -p no:cacheprovider -m "$(PURE)$(1)" $(2) </dev/null

# It leaves the rewritten assertions of all modules of tests in a cache: each process of the suite would rewrite them for itself.
COLLECTED = { $(BIN)/pytest --collect-only -qq && echo "check: every test can be collected"; }

# $(call beside,NAME,FIRST,SECOND): both at the same time; what FIRST says comes last. It fails if one of them does.
define beside
mkdir -p build; $(2) >build/$(1).log 2>&1 & other=$$!; trap 'kill $$other 2>/dev/null' INT TERM; \
	$(3); ended=$$?; wait $$other || ended=$$?; \
	if [ $$ended = 0 ]; then tail -n 1 build/$(1).log; else cat build/$(1).log; fi; exit $$ended
endef

.PHONY: demo test check bench compat soak axe docs package mutate setup java jars avro programs clean
.NOTPARALLEL:
.DELETE_ON_ERROR:

demo: setup jars
	@$(BIN)/sparklog demo $(ARGS)

test: setup jars avro programs
	@$(if $(ARGS),$(call SUITE,$(ARGS)),$(call beside,source,$(call ON_SOURCE, and source,$(NEED_SOURCE)),$(call SUITE,-n $(WORKERS))))

check: setup
	@echo "check: ruff format" && $(BIN)/ruff format --check --quiet .
	@echo "check: ruff" && $(BIN)/ruff check --quiet .
	@echo "check: the stub of the messages" && $(BIN)/python -m sparklog.protocol.message_stubs | cmp -s - $(STUB) || \
		{ echo "make: $(STUB) is stale; type: $(BIN)/python -m sparklog.protocol.message_stubs >$(STUB)" >&2; exit 1; }
	@echo "check: mypy" && $(call beside,collected,$(COLLECTED),$(BIN)/mypy --no-error-summary)
	@echo "check: import-linter" && $(BIN)/lint-imports --no-logo
	@echo "check: docs" && $(SITE)

bench: setup jars
	@$(BIN)/python -m benchmarks $(ARGS)

compat: setup jars programs
	$(call want,psql,postgresql)
	@$(BIN)/python -m sparklog.local.jars kafka kafka-1.1 kafka-4 kafka-streams spark-kafka avro hadoop postgresql >/dev/null
	@SPARKLOG_PEERS="$${SPARKLOG_PEERS:-$(wildcard $(CURDIR)/build/peers)}" $(BIN)/pytest -m peer --timeout=900 $(or $(ARGS),-n $(HEAVY)) </dev/null

# What fails in the first part is no reason to leave out the second, which takes hours.
soak: setup jars axe programs
	@$(if $(ARGS),:,($(call beside,source,$(call ON_SOURCE,,$(WITH_HOT)),$(DRAWN)))); first=$$?; \
	$(BIN)/pytest -m "slow and not peer" --timeout=3600 $(or $(ARGS),-n $(HEAVY)) </dev/null && exit $$first

# What finds faults of accessibility in the web page. Its test is skipped where there is no npm.
axe: build/axe/node_modules/axe-core/axe.min.js

build/axe/node_modules/axe-core/axe.min.js:
	@mkdir -p build/axe
	@if command -v npm >/dev/null 2>&1; then npm install --silent --no-audit --no-fund --ignore-scripts --prefix build/axe \
		axe-core@4.14.1 </dev/null || true; fi

docs: setup
	@$(SITE)
	@echo "docs: build/site/index.html; to search in it: $(BIN)/python -m http.server --directory build/site"

package:
	$(NEED_PYTHON)
	@test -f $(TOOLS)/.ready -a ! conf/packaging/tools.txt -nt $(TOOLS)/.ready || { \
		$(PYTHON) -m venv --clear $(TOOLS) && \
		$(TOOLS)/bin/pip install --quiet --disable-pip-version-check --no-input -r conf/packaging/tools.txt </dev/null && \
		touch $(TOOLS)/.ready; }
	@rm -rf build/package && mkdir -p build/package $(DIST)
	@umask 022 && PATH="$(abspath $(TOOLS))/bin:$$PATH" && SPARKLOG_IMPL=native && PYTHONHASHSEED=0 && \
		SOURCE_DATE_EPOCH="$${SOURCE_DATE_EPOCH:-$$(git log -1 --format=%ct)}" && \
		export PATH SPARKLOG_IMPL PYTHONHASHSEED SOURCE_DATE_EPOCH && { \
		python -m build --no-isolation --outdir build/package . && \
		auditwheel repair --wheel-dir build/package/repaired build/package/*.whl; } \
		</dev/null >build/package.log 2>&1 || { cat build/package.log >&2; exit 1; }
	@mv build/package/*.tar.gz build/package/repaired/*.whl $(DIST)/ && ls $(DIST)/*

mutate: setup
	@$(BIN)/python -m mutmut run $(ARGS) </dev/null

# What was compiled of a module that is gone would still be imported.
setup: $(READY) $(COMPILED)
	@find src/sparklog -name '*.so' | while read -r so; do \
		test -e "$${so%%.*}.py" || test -e "$${so%%.*}.pyx" || rm -f "$$so"; done

# $(call install,WHAT,PACKAGES,OR_ELSE): install PACKAGES (or else those of a newer Debian) if we may: as root, with apt-get.
define install
if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then \
	echo "setup: installing $(1) with apt-get"; \
	export DEBIAN_FRONTEND=noninteractive; \
	$(call aloud,installing $(1),{ apt-get update; apt-get install -y --no-install-recommends $(2) \
		$(if $(3),|| apt-get install -y --no-install-recommends $(3)); } </dev/null >/dev/null 2>&1); \
fi
endef

# $(call need,TEST,WHAT,PACKAGES,OR_ELSE): where TEST fails, install; where that fails too, say in one line what to type.
define need
@{ $(1); } >/dev/null 2>&1 || { \
	$(call install,$(2),$(3),$(4)); \
	{ $(1); } >/dev/null 2>&1 || { echo "make: $(2) is missing; type: sudo apt-get install -y $(3)" >&2; exit 1; }; }
endef

# $(call want,PROGRAM,PACKAGE,OTHERS): install what only a few tests need, and other packages with it. They are skipped without
# it, and the run ends with a line that says so (tests/fix_programs.py). What could not be installed is not tried again for a day.
define want
@command -v $(1) >/dev/null 2>&1 || [ -n "$$(find .venv/.without-$(2) -mtime -1 2>/dev/null)" ] || { \
	$(call install,$(2),$(2) $(3)); \
	command -v $(1) >/dev/null 2>&1 || [ "$$(id -u)" != 0 ] || touch .venv/.without-$(2); }
endef

# $(call mask,PROGRAM,SERVICE): before PROGRAM is installed for tests, which start it themselves: its service, which has its name
# where none is said, does not run, now or at a boot.
define mask
@command -v $(1) >/dev/null 2>&1 || [ "$$(id -u)" != 0 ] || [ ! -d /etc/systemd/system ] || \
	ln -s /dev/null /etc/systemd/system/$(or $(2),$(1)).service 2>/dev/null || true
endef

# $(call aloud,WHAT,COMMAND): COMMAND, with a line every ten seconds for as long as it takes.
define aloud
{ ( waited=0; while sleep 10 </dev/null >/dev/null 2>&1 && kill -0 $$$$ 2>/dev/null; do \
		waited=$$((waited + 10)); echo "setup: still $(1) ($$waited s)"; done ) & \
	ticker=$$!; trap 'kill $$ticker 2>/dev/null' EXIT INT TERM; $(2); }
endef

RIGHT_PYTHON = $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))'
C_HEADERS = test -f "$$($(PYTHON) -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h"

define NEED_PYTHON
@$(if $(PYTHON),$(RIGHT_PYTHON),false) 2>/dev/null || { \
	echo "make: Python 3.11 or newer is missing; type: sudo apt-get install -y python3 python3-venv python3-dev" \
		"(or name one: make PYTHON=/path/to/python3.11)" >&2; exit 1; }
$(call need,command -v cc || command -v gcc,a C compiler,gcc libc6-dev)
$(call need,$(C_HEADERS),Python's C header,python3-dev)
$(call need,$(PYTHON) -c 'import ensurepip',Python's venv module,python3-venv)
endef

$(READY): pyproject.toml setup.py
	$(NEED_PYTHON)
	@test -x $(BIN)/pip || { echo "setup: making .venv with $(PYTHON)"; $(PYTHON) -m venv .venv; }
	@echo "setup: installing sparklog and what it needs into .venv (once; a few minutes)"
	@$(call aloud,installing,$(BIN)/pip install --quiet --disable-pip-version-check --no-input --editable '.[dev]' </dev/null)
	@touch $@ $(COMPILED)

# What cannot be compiled ends it: of an installation it would be left out, and here what was compiled before would stay.
$(COMPILED): $(PYX) $(HOT) src/sparklog/compiled.py setup.py $(READY)
	@echo "setup: compiling the record codec and the hot path (once for each change; a minute)"
	@mkdir -p build
	@$(call aloud,compiling,SPARKLOG_IMPL=native $(BIN)/python setup.py --quiet build_ext --inplace --build-temp build/compiled \
		</dev/null >build/compiled.log 2>&1) || { cat build/compiled.log >&2; exit 1; }
	@touch $@

java: setup
	$(call need,$(BIN)/python -m sparklog.local.java,Java 17,openjdk-17-jre-headless,openjdk-21-jre-headless)

programs: setup
	$(call want,chromium,chromium)
	$(call want,kcat,kcat)
	$(call want,logrotate,logrotate)
	$(call want,curl,curl)
	$(call want,jq,jq)
	$(call want,fish,fish)
	$(call want,zsh,zsh)
	$(call want,mkfs.ext4,e2fsprogs)
	$(call mask,prometheus)
	$(call want,prometheus,prometheus)
	$(call mask,krb5kdc,krb5-kdc)
	$(call mask,krb5kdc,krb5-admin-server)
	$(call want,krb5kdc,krb5-kdc,krb5-admin-server krb5-user gcc libkrb5-dev libsasl2-modules-gssapi-mit)
	$(GSSAPI)

# What it is built with comes with the programs. Its tests are skipped without it.
define GSSAPI
@$(BIN)/python -c 'import gssapi' 2>/dev/null || [ -n "$$(find .venv/.without-gssapi -mtime -1 2>/dev/null)" ] || \
	! command -v krb5-config >/dev/null 2>&1 || { echo "setup: installing gssapi into .venv"; \
	$(BIN)/pip install --quiet --disable-pip-version-check --no-input 'gssapi>=1.8' </dev/null >/dev/null 2>&1 || \
	touch .venv/.without-gssapi; }
endef

jars: setup java
	@$(call aloud,fetching JARs,$(BIN)/python -m sparklog.local.jars delta >/dev/null)

# What one test needs; without it that test is skipped and says so.
avro: jars
	@$(BIN)/python -m sparklog.local.jars avro >/dev/null 2>&1 || true

clean:
	find build -mindepth 1 -maxdepth 1 ! -name peers -exec rm -rf {} + 2>/dev/null || true
	rm -rf .venv dist mutants src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	rm -f src/sparklog/record/_impl/_codec.c flight-delays.png
	find src -name '*.so' -type f -delete
	find src tests jobs benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
