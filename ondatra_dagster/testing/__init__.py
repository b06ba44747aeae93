"""For tests of your own: what a push function gets wrong, a fake API, and the demo API.

from ondatra_dagster.testing import PushCase, problems_of
"""

import importlib
from typing import Any

_HOMES = {
    "Answer": "calls",
    "Fault": "faults",
    "PushCase": "conformance.case",
    "Request": "fake_api",
    "State": "fake_api",
    "problems_of": "conformance.kit",
    "refusal": "calls",
    "running_fake_api": "fake_api",
}


def __getattr__(name: str) -> Any:
    """Each is loaded when it is asked for: the demo API needs no queue."""
    if name not in _HOMES:
        raise AttributeError(f"ondatra_dagster.testing has no {name!r}")
    return getattr(importlib.import_module(f"ondatra_dagster.testing.{_HOMES[name]}"), name)
