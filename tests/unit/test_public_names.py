"""The names that users import. A new name is a promise, and a missing one breaks projects."""

import subprocess
import sys

import pytest

import ondatra_dagster
from ondatra_dagster import testing

PUBLIC_NAMES = {
    ondatra_dagster: ["build_definitions"],
    testing: ["Answer", "Fault", "PushCase", "Request", "State", "problems_of", "refusal", "running_fake_api"],
}


@pytest.mark.parametrize("module", PUBLIC_NAMES, ids=lambda module: module.__name__)
def test_these_names_are_public(module):
    assert PUBLIC_NAMES[module] == module.__all__ == sorted(module._MODULES)


@pytest.mark.parametrize(
    ("module", "name"), [(module, name) for module in PUBLIC_NAMES for name in PUBLIC_NAMES[module]]
)
def test_a_public_name_can_be_imported(module, name):
    assert getattr(module, name)


@pytest.mark.parametrize("module", PUBLIC_NAMES, ids=lambda module: module.__name__)
def test_another_name_is_refused(module):
    with pytest.raises(AttributeError, match=f"module '{module.__name__}' has no attribute 'problem_of'"):
        _ = module.problem_of


def test_importing_the_package_imports_neither_dagster_nor_spark():
    """Commands that need neither of them start in a fraction of a second."""
    program = "import sys, ondatra_dagster.testing; print({'dagster', 'pyspark', 'pyarrow'} & {*sys.modules})"
    completed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "set()\n" == completed.stdout
