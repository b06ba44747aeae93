"""The Dagster definitions of this project: each model and sink of the parent folder."""

from pathlib import Path

from ondatra_dagster import build_definitions

defs = build_definitions(Path(__file__).parent.parent)
