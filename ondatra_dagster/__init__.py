"""The package of ondatra: SQL models as Delta tables, and syncs that send their changed rows to APIs.

A project only needs `build_definitions`. `ondatra_dagster.testing` has what the tests of push functions need.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ondatra_dagster.orchestration.definitions import build_definitions

__all__ = ["build_definitions"]

_MODULES = {"build_definitions": "orchestration.definitions"}


def __getattr__(name: str) -> Any:
    """Return a name from its module, which is imported on first use, because importing Dagster takes a second."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
