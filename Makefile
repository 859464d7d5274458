# Everything happens in .venv, made here on first use and never outside this folder. It is brought up to
# date when pyproject.toml or constraints.txt change.
#
#   PYTHON=python3.12   what .venv is made with (default: the first suitable of python3, python3.14, ...)
#   ARGS="-k lmdb"      passed on by test, demo and bench
#   SECONDS=300         how long fuzz runs
#
# install, demo, test, smoke and bench build the JPEG kernel of native/ too, where there is what it needs.
#
# torch from PyPI brings CUDA, several GB on x86_64. Where no GPU is to be used, the much smaller build is
#   PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu make demo

PYTHON ?=
ARGS ?=
SECONDS ?= 300
VENV := .venv
PY := $(VENV)/bin/python
# pip shows its progress on a terminal only.
PIP_INSTALL := $(PY) -m pip install $(if $(MAKE_TERMOUT),,--quiet) \
	--disable-pip-version-check -c constraints.txt
RUN := $(VENV)/run.stamp
TEST := $(VENV)/test.stamp
DEV := $(VENV)/dev.stamp
NATIVE := $(VENV)/native.stamp
INTEROP := .venv-interop
EXAMPLES := .venv-examples

.DEFAULT_GOAL := help
.PHONY: help install demo test smoke native interop examples torture fuzz memcheck arm count lint types format build bench \
	check clean
install demo test smoke bench: TRY := --try

help:  ## Show this list
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' Makefile | expand -t 20

install: $(DEV) $(NATIVE)  ## Make .venv with fastconv (editable) and everything to work on it

demo: $(RUN) $(NATIVE)  ## Make some images, pack them in all formats, read them back, print the speeds
	$(PY) examples/demo.py $(ARGS)

test: $(TEST) $(NATIVE)  ## Run the tests
	$(PY) -m pytest -n 2 --ignore tests/benchmarks --ignore tests/examples $(ARGS)

smoke: $(TEST) $(NATIVE)  ## Run all benchmarks and examples on a handful of images, to see that they work
	$(PY) -m pytest -n 2 tests/benchmarks tests/examples $(ARGS)

native: $(NATIVE)  ## Build the JPEG kernel and install it into .venv (a C compiler, libjpeg62-turbo-dev)

interop: $(INTEROP)/run.stamp  ## Test with the libraries of other projects (2.7 GB in .venv-interop)
	FASTCONV_INTEROP=1 $(INTEROP)/bin/python -m pytest tests/interop $(ARGS)

examples: $(EXAMPLES)/run.stamp  ## Test examples/, also those for Lightning and Hugging Face Trainer
	FASTCONV_EXAMPLES=1 $(EXAMPLES)/bin/python -m pytest tests/examples $(ARGS)

torture: $(TEST)  ## Kill, cut power and fill disks, over and over (an hour; root sees more)
	$(PY) -m pytest tests/contract/test_replacement.py -m torture -q -o timeout=600 -o faulthandler_timeout=500
	$(PY) -m pytest tests/torture -p no:xdist -q -o timeout=1200 -o faulthandler_timeout=1100 $(ARGS)

fuzz: $(RUN)  ## Feed the JPEG kernel with damaged files for SECONDS (clang), to see that it minds its memory
	sh native/fuzz/run.sh fuzz $(PY) $(SECONDS)

memcheck: $(RUN)  ## Let valgrind watch the JPEG kernel over a few hundred files
	sh native/fuzz/run.sh memcheck $(PY)

count:  ## Count the instructions that the JPEG kernel takes for the photos in the folder PHOTOS (valgrind)
	sh native/count/run.sh $(PHOTOS)

arm: $(RUN)  ## Compare the JPEG kernel's pixels with those on 64-bit ARM (a cross compiler, qemu-user-static)
	sh native/fuzz/run.sh arm $(PY)

lint: $(DEV)  ## Check style, formatting and the direction of imports
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(VENV)/bin/lint-imports

types: $(DEV)  ## Check types
	$(PY) -m mypy

format: $(DEV)  ## Format the sources
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

build: $(TEST)  ## Build the sdist and the wheel into dist/
	rm -rf dist
	$(PY) -m hatchling build -d dist

bench: $(RUN) $(NATIVE)  ## Measure; see benchmarks/
	$(PY) benchmarks/run.py $(ARGS)

check: test lint types build  ## All that must pass before a commit

clean:  ## Remove .venv and everything else made here
	rm -rf native/build native/src/*.egg-info
	rm -rf $(VENV) $(INTEROP) $(EXAMPLES) dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The build backends are installed beside fastconv, so that they are pinned too.
$(RUN): pyproject.toml constraints.txt
	@echo "Installing fastconv into $(VENV): a few minutes the first time, most of them for torch"
	@sh scripts/make_venv.sh $(VENV) $(PYTHON)
	@$(PIP_INSTALL) --upgrade pip hatchling setuptools
	@$(PIP_INSTALL) --no-build-isolation -e '.[tfrecord]'
	@touch $@

$(NATIVE): $(RUN) $(wildcard native/*.* native/kernel/* native/src/fastconv_native/*)
	@sh scripts/make_native.sh $(VENV) $@ $(TRY)

$(TEST): $(RUN)
	@$(PIP_INSTALL) --group test
	@touch $@

# Over .venv: what is there, torch above all, is not installed again.
define venv_over
	@echo "Installing the libraries of other projects into $(1): two minutes"
	@sh scripts/make_venv_over.sh $(1) $(VENV)
	@$(PY) -m pip --python $(1)/bin/python install $(if $(MAKE_TERMOUT),,--quiet) \
		--disable-pip-version-check --no-deps -r $(2)
	@touch $@
endef

$(INTEROP)/run.stamp: $(TEST) tests/interop/requirements.txt
	$(call venv_over,$(INTEROP),tests/interop/requirements.txt)

$(EXAMPLES)/run.stamp: $(TEST) tests/examples/requirements.txt
	$(call venv_over,$(EXAMPLES),tests/examples/requirements.txt)

$(DEV): $(TEST)
	@$(PIP_INSTALL) --group dev
	@touch $@
