"""The fixtures of these tests: a shop with a demo API on loopback, and Dagster's Materialize button."""

from support.projects.dagster_fixtures import dagster_instance, materialize, shop

__all__ = ["dagster_instance", "materialize", "shop"]
