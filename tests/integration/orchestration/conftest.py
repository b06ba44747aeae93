"""The fixtures for Dagster's runs: a shop, a demo API on loopback, and Dagster's Materialize button."""

from support.projects.dagster_fixtures import dagster_instance, materialize, shop

__all__ = ["dagster_instance", "materialize", "shop"]
