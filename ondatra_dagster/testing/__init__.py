"""The test kit for push functions: a check of their contract, a fake API, and the demo API.

from ondatra_dagster.testing import PushCase, problems_of
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ondatra_dagster.testing.conformance.contract_rule_checks import problems_of
    from ondatra_dagster.testing.conformance.push_test_input import PushCase
    from ondatra_dagster.testing.fake_api import Request, State, running_fake_api
    from ondatra_dagster.testing.fake_api_server import Answer, Fault, refusal

__all__ = ["Answer", "Fault", "PushCase", "Request", "State", "problems_of", "refusal", "running_fake_api"]

_MODULES = {
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
    """Return a name from its module, which is loaded on first use, so that the demo API doesn't load the queue."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
