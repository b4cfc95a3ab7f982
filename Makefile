# Two commands do everything on a fresh machine: `make demo` (the main job) and `make test`. Both set up what they need.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: setup demo check test test-gpu soak report clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	@echo "installing torch and pkb into $(VENV) (a minute or two the first time)"
	@$(BIN)/pip install -q --disable-pip-version-check -c constraints.txt "$$(grep '^torch==' constraints.txt)"
	@$(BIN)/pip install -q --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $(STAMP)

# Four candidates for one problem, judged on the best platform of this machine: right, wrong on one rank, racy, deadlocked.
demo: setup
	@$(BIN)/python examples/demo.py

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/size_budget.py

test: check
	$(BIN)/python -m pytest -q -n auto --dist worksteal

test-gpu: setup
	$(BIN)/python -m pytest -q --gpu tests/gpu tests/adversaries

soak: setup
	$(BIN)/python benchmarks/soak.py --count 200

# The project's own adversaries and kernels, judged cheaply (some minutes the first time, resumable) and shown: out/report.
report: setup
	@run=$$($(BIN)/python tools/own_suite.py --store out/store | tail -1) && test -n "$$run" \
	&& $(BIN)/pkb report "$$run" --store out/store --out out/report --figures

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache build dist
