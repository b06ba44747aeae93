# Each target sets up what it needs first, and is one line. `make` alone lists them.
.PHONY: help run dev api ui test unit check docs pictures bench bench-kinds pin soak
PORT = 8321
DAGSTER_PORT = 3000
DEMO = .venv/bin/python -m ondatra_dagster.testing.demo_api --port $(PORT) --state .ondatra/demo_api.json
# keep bytecode: otherwise each worker, and each process that a test starts, compiles all modules again
PYTEST = env -u PYTHONDONTWRITEBYTECODE .venv/bin/python -m pytest -n 4 --dist load
# unit tests don't wait, so more workers than processors would only take longer to start
UNIT = $(PYTEST) -n logical tests/unit

help: ## list the commands
	@sed -n 's/^\([a-z-]*\): ## /make \1	/p' Makefile
run: ## run the example project against a demo API, and show what was delivered
	@sh setup.sh && $(DEMO) -- .venv/bin/ondatra run && echo 'To look around: make api, make dev, make ui, .venv/bin/ondatra --help'
dev: ## the same in Dagster's UI, which stays up
	@sh setup.sh && echo "Dagster's page will be http://127.0.0.1:$(DAGSTER_PORT); Ctrl-C ends it" && $(DEMO) -- env ONDATRA_DAGSTER_URL=$${ONDATRA_DAGSTER_URL:-http://127.0.0.1:$(DAGSTER_PORT)} VIRTUAL_ENV="$(CURDIR)/.venv" PYTHONWARNINGS=ignore:Function .venv/bin/dg dev --no-check-yaml --port $(DAGSTER_PORT) --log-level warning
api: ## the demo API alone: its page shows its content
	@sh setup.sh && $(DEMO)
ui: ## the records page of the example project, at the address that it prints
	@sh setup.sh && .venv/bin/ondatra ui
test: ## every test, with format, lint and types, as CI runs them
	@sh setup.sh test && $(PYTEST)
soak: ## what takes too long for each change, within an hour: 200 kills, 200 histories a kind and batch size, runs and maintenance killed with their JVM, a day under dg dev, the kinds on a cluster, through Connect and on S3
	@sh setup.sh test && ONDATRA_TEST_KILLS=200 ONDATRA_TEST_HISTORIES=50 $(PYTEST) -n 2 -v -m '' tests/faults tests/soak tests/spark/test_maintenance.py tests/unit/delivery/queue/test_random_destination_state.py tests/unit/sync/test_random_sync_histories.py
unit: ## the quick tests: no Java, no network
	@sh setup.sh test && $(UNIT)
check: ## format, lint, types, unit tests
	@sh setup.sh test && $(UNIT) tests/test_code_style.py
docs: ## build the documentation as a site in the folder site; a broken link is an error
	@sh setup.sh test && .venv/bin/zensical build --clean --strict
pictures: ## take the pictures of the documentation again, in light and dark (5 minutes)
	@sh setup.sh test && ONDATRA_TEST_PICTURES=docs/pictures $(PYTEST) -n 0 -m '' tests/soak/test_pictures.py
bench: ## measure it next to its peers, into docs/bench.md (5 minutes)
	@sh setup.sh && .venv/bin/python -m bench
bench-kinds: ## each kind at a million rows, next to hand-written SQL, into docs/bench-kinds.md (5 to 10 minutes)
	@sh setup.sh && .venv/bin/python -m bench.kind_writes
pin: ## pin the newest releases that pyproject.toml allows
	@sh setup.sh pin
