"""The definitions that Dagster loads: every model and sink of the folder above."""

from pathlib import Path

from ondatra_dagster.orchestration.definitions import build_definitions

defs = build_definitions(Path(__file__).parent.parent)
