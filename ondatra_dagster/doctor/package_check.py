"""Whether the installed packages are of the versions that this ondatra works with."""

import importlib.metadata
import platform
from collections.abc import Iterator

from packaging.requirements import Requirement

from ondatra_dagster.doctor.check_result import CheckResult, failed, ok
from ondatra_dagster.doctor.machine import Machine

SHOWN = ("ondatra", "dagster", "pyspark", "delta-spark")


def check(_: Machine) -> Iterator[CheckResult]:
    """Return a result for each package that isn't as the installed ondatra requires, or one for all."""
    wrong = [result for each in _requirements() if (result := _judge(each))]
    shown = [f"{name} {version}" for name in SHOWN if (version := _version(name))]
    yield from wrong or [ok(", ".join([*shown, f"Python {platform.python_version()}"]))]


def _requirements() -> list[Requirement]:
    """Return what ondatra requires here; its extras are the user's choice."""
    required = map(Requirement, importlib.metadata.requires("ondatra") or ())
    return [each for each in required if each.marker is None or each.marker.evaluate({"extra": ""})]


def _judge(required: Requirement) -> CheckResult | None:
    version = _version(required.name)
    remedy = f"pip install '{required}'"
    if version is None:
        return failed(f"{required.name} is not installed", remedy)
    if not required.specifier.contains(version, prereleases=True):
        return failed(f"{required.name} is {version}, and ondatra needs {required.specifier}", remedy)
    return None


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
