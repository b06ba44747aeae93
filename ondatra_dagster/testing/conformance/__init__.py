"""The conformance kit, which describes each error of a push function.

Users import it from `ondatra_dagster.testing`.
"""
