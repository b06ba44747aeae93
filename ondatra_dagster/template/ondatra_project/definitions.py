"""The Dagster definitions of this project: every model and sink in the parent folder."""

from pathlib import Path

from ondatra_dagster import build_definitions

defs = build_definitions(Path(__file__).parent.parent)
