# Two commands do everything on a fresh machine: `make demo` (the main job) and `make test`. Both set up what they need, the demo
# only the core. PYTHON=python3.12 names another Python, TORCH_INDEX=URL where torch comes from (docs/setup.md).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: setup core demo check pins test test-gpu node soak report screenshots clean

SETUP = @command -v "$(PYTHON)" > /dev/null || { echo 'set-up: there is no $(PYTHON): install Python 3.11 or newer (Debian, Ubuntu: apt install python3 python3-venv)' >&2; exit 1; }; \
	"$(PYTHON)" tools/setup.py

core:
	$(SETUP) core

setup:
	$(SETUP) dev

# Four candidates for one problem, judged on the best platform of this machine: right, wrong on one rank, racy, deadlocked.
demo: core
	@$(BIN)/pkb demo

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python tools/size_budget.py
	$(BIN)/python tools/pins.py check

# After a change of dependencies: pins for all versions of Python, for torch as PyPI publishes it.
pins: setup
	$(BIN)/python tools/pins.py make

test: check
	$(BIN)/python -m pytest -q -n auto --dist worksteal

test-gpu: setup
	$(BIN)/python -m pytest -q --gpu tests/gpu tests/adversaries

# Everything that a machine with GPUs can say, in one archive of records (docs/contribute-a-machine.md); under an hour, resumable.
# NODE='--only probe,control,kernels --budget 4' makes it shorter.
node: setup
	$(BIN)/python tools/validate_node.py $(NODE)

soak: setup
	$(BIN)/python benchmarks/soak.py --count 200

# What frontier models wrote, as judged here (docs/frontier.md), from the records: a site in a minute, without a GPU. Where there are
# no records yet, or with REPORT=own, the project's own adversaries and kernels, judged cheaply (some minutes the first time,
# resumable). The site is in out/report.
report: setup
	@run=$$(test "$(REPORT)" = own || $(BIN)/python tools/frontier_run.py --store out/store) || exit 1; \
	test -n "$$run" || run=$$($(BIN)/python tools/own_suite.py --store out/store | tail -1); test -n "$$run" \
	&& $(BIN)/pkb report "$$run" --store out/store --out out/report --figures --records docs/records

# Every kind of page of the report, wide and narrow, light and dark, of made-up runs: out/screenshots. Needs chromium.
screenshots: setup
	$(BIN)/python tools/screenshots.py out/screenshots

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache build dist
