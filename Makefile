# make demo | test | test-all | lint | bench | accuracy | optimum | site | clean      Each sets everything up first; a second time that costs nothing.
MAKEFLAGS += --no-print-directory
unexport PYTHONDONTWRITEBYTECODE  # each worker and each command would compile every file again
unexport PYTHONUNBUFFERED  # users have it not, and it hides what a buffer does
PYTEST = -m pytest
SPREAD = --dist loadfile -n
PLUGINS = --benchmark-disable -o asyncio_default_fixture_loop_scope=function
OLD = $(addprefix tests/, checker cli diagnostics/test_render.py emit/test_recipe.py examples/test_snapshots.py \
      explainer/test_explanations.py::test_reads importer rules/test_evaluators.py rules/test_stdlib_cache.py \
      schema solver/test_lower.py solver/test_search.py::test_the_same_bytes_whatever_the_hash_seed support \
      $(addprefix syntax/test_, bad_input.py foreign_syntax.py parser.py printer.py))
DEMO = examples/qwen3_235b_gb200_128k.moe

.PHONY: demo test test-all lint bench accuracy optimum site setup clean

demo: setup
	@echo "moedsl compile $(DEMO) -o out/demo"
	@.venv/bin/moedsl compile $(DEMO) -o out/demo

test: setup
	@tools/system
	@if [ -x .venv311/bin/python ]; then \
	    echo "what can differ between Pythons, under 3.11"; \
	    .venv311/bin/python $(PYTEST) $(SPREAD) 2 -m "not bridge and not bench" -q $(if $(MOEDSL_WIDE),tests,$(OLD)); \
	else echo "no Python 3.11 here: the core is tested under 3.12 alone"; fi
	@echo "every test under Python 3.12, the real Megatron Bridge included"
	@.venv/bin/python $(PYTEST) $(SPREAD) 4 $(PLUGINS) -m "not bench" -q

test-all: setup  # every cell of the wide tests, ten minutes of soak, and every test of the core under Python 3.11 too
	@MOEDSL_WIDE=all $(MAKE) test MOEDSL_WIDE=all

lint: setup
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/pyright
	@.venv/bin/lint-imports --no-logo

bench: setup
	@.venv/bin/python $(PYTEST) -m bench -q

accuracy: setup
	@PYTHONPATH=. .venv/bin/python tools/make_accuracy.py

optimum: setup
	@PYTHONPATH=. .venv/bin/python tools/make_optimum.py

site: setup  # the documents as pages, in out/site
	@.venv/bin/python tools/make_site.py

setup:
	@tools/setup

clean:
	rm -rf .venv .venv311 .setup out .pytest_cache .ruff_cache .import_linter_cache .hypothesis .benchmarks
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
