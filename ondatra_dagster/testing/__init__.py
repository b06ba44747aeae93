"""For tests of your own: what a push function gets wrong, a fake API, and the demo API.

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
    """Each is loaded when it is asked for: the demo API needs no queue."""
    if name not in _EXPORTS:
        raise AttributeError(f"ondatra_dagster.testing has no {name!r}")
    return getattr(importlib.import_module(f"ondatra_dagster.testing.{_EXPORTS[name]}"), name)
