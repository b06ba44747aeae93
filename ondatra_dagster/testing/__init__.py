"""The test kit for push functions: a check of their contract, a fake API, and the demo API.

from ondatra_dagster.testing import PushCase, problems_of
"""

import importlib
from typing import Any

_EXPORTS = {
    "Answer": "fake_api_server",
    "Fault": "fake_api_server",
    "PushCase": "conformance.push_test_input",
    "Request": "fake_api",
    "State": "fake_api",
    "problems_of": "conformance.contract_rule_checks",
    "refusal": "fake_api_server",
    "running_fake_api": "fake_api",
}


def __getattr__(name: str) -> Any:
    """Load a name's module on first use, so that the demo API doesn't load the queue."""
    if name not in _EXPORTS:
        raise AttributeError(f"ondatra_dagster.testing has no {name!r}")
    return getattr(importlib.import_module(f"ondatra_dagster.testing.{_EXPORTS[name]}"), name)
