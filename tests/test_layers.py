"""The package's structure: the allowed imports, one home for each library, and names that occur once.

docs/design.md has the table of packages and the order of imports. These tests read both.
"""

import ast
import collections
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = "ondatra_dagster"
DESIGN = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
# each layer may import those before it; members of one layer don't import each other
LAYERS = [line.split(", ") for line in re.findall(r"^\d+\. (.+)$", DESIGN.partition("## Decisions")[0], re.MULTILINE)]
PACKAGE_ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in DESIGN.partition("## Decisions")[0].splitlines()
    if line.startswith("| `")
]
# users' tests import the kit, which needs only delivery and what is below it
BELOW_TESTING = {
    "delivery",
    "project",
    "storage",
    "row_changes",
    "errors",
    "count_time_and_size_format",
    "interruption",
    "testing",
}
# libraries with more than one home, or with one module as their home
SHARED_LIBRARIES = {
    "grpc": {"warehouse.spark.spark_connect"},
    "starlark": {"delivery.push.starlark"},
    "httpx": {"delivery.http", "testing.conformance.sync_runs_on_fake_api"},
    "pyarrow": {
        "warehouse",
        "records",
        "deltalog.log_reader",
        "deltalog.log_storage",
        "deltalog.active_files",
        "storage.s3_filesystem_and_listing",
        "collector.event_store",
    },
    "fsspec": {"records.remote_storage"},
    "click": {"cli", "testing"},
    "starlette": {"ui", "testing"},
    "uvicorn": {"ui", "collector", "testing"},
    "httptools": {"collector.event_server"},
    "msgspec": {"collector.fast_event_validation"},
    "dotenv": {"project.settings.read_raw_setting_entries"},
}
LIBRARY_HOMES = {
    **{
        library: {row[0].strip("`/").replace("/", ".")}
        for row in PACKAGE_ROWS
        for library in filter(None, row[2].split(", "))
    },
    **SHARED_LIBRARIES,
}
TEMPLATE = "template"  # a separate project, which `ondatra init` writes
MAX_SIBLINGS = 20
# modules that may share a name, with the reason
SAME_MODULE_NAMES = {
    "definitions": "Dagster expects the name in the project that `ondatra init` writes, and users import ours"
}


class Import(NamedTuple):
    module: str  # the importing module, without the package's name
    imported: str
    line: int

    def __str__(self) -> str:
        return f"{self.module}:{self.line} imports {self.imported}"


@functools.cache  # parsing the package takes a second
def modules() -> tuple[tuple[str, ast.Module], ...]:
    return tuple(_parse_modules())


def _parse_modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted((ROOT / PACKAGE).rglob("*.py")):
        parts = path.relative_to(ROOT / PACKAGE).with_suffix("").parts
        if parts[0] not in (TEMPLATE,):
            yield ".".join(part for part in parts if part != "__init__"), ast.parse(path.read_text())


@functools.cache
def imports() -> list[Import]:
    entries = []
    for module, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                entries += [Import(module, alias.name, node.lineno) for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                entries += [Import(module, f"{node.module}.{alias.name}", node.lineno) for alias in node.names]
    return entries


def top_level(module: str) -> str:
    return module.partition(".")[0]


def layer_number(module: str) -> int:
    return next(number for number, layer in enumerate(LAYERS) if top_level(module) in layer)


def is_below(imported: str, module: str) -> bool:
    """Return whether the module may import the other."""
    if top_level(imported) == top_level(module):
        return True
    if "testing" in (top_level(imported), top_level(module)):
        return top_level(module) == "testing" and top_level(imported) in BELOW_TESTING
    return layer_number(imported) < layer_number(module)


def test_imports_go_one_way() -> None:
    """A package that imports a higher one can't be understood, or tested, without it."""
    ours = [import_ for import_ in imports() if top_level(import_.imported) == PACKAGE and import_.module]
    wrong = [import_ for import_ in ours if not is_below(import_.imported.removeprefix(f"{PACKAGE}."), import_.module)]
    assert [] == list(map(str, wrong))


def test_every_package_has_a_layer() -> None:
    """A new package needs a line in docs/design.md."""
    layer_names = {name for layer in LAYERS for name in layer} | {"testing"}
    assert {top_level(module) for module, _ in modules() if module} <= layer_names


@pytest.mark.parametrize(("library", "homes"), LIBRARY_HOMES.items(), ids=list(LIBRARY_HOMES))
def test_a_library_has_one_home(library: str, homes: set[str]) -> None:
    """Two packages that use one library both change with it."""
    users = [import_ for import_ in imports() if top_level(import_.imported) == library]
    strays = [
        import_
        for import_ in users
        if not any(import_.module == home or import_.module.startswith(f"{home}.") for home in homes)
    ]
    assert [] == list(map(str, strays))


def test_the_environment_is_read_in_one_place() -> None:
    """Otherwise there is no list of all variables, and .env doesn't win where it should."""
    readers = {
        module
        for module, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv", "environb")
    }
    assert readers <= {"project.settings.read_settings_and_defaults"}


def test_annotations_are_never_postponed() -> None:
    """With `from __future__ import annotations` Dagster refuses `context: dg.AssetExecutionContext`."""
    assert [] == [str(import_) for import_ in imports() if import_.imported.startswith("__future__")]


def test_imports_are_absolute() -> None:
    """A module can then be found by its name."""
    relative = [
        module
        for module, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.level
    ]
    assert [] == relative


def test_packages_import_nothing() -> None:
    """An import must not load the module's neighbours: the quick commands depend on that."""
    packages = {path.parent for path in (ROOT / PACKAGE).rglob("__init__.py")}
    names = {".".join(package.relative_to(ROOT / PACKAGE).parts) for package in packages}
    inner = {name for name in names if name and top_level(name) != "testing"}  # these two have the public names
    assert [] == [str(import_) for import_ in imports() if import_.module in inner]


def test_functions_that_dagster_calls_are_short() -> None:
    """They read their inputs, call one plain function, and report: at most 15 lines."""
    long = []
    for path in (ROOT / PACKAGE / "orchestration").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and any("dg." in ast.unparse(d) for d in node.decorator_list):
                lines = (node.end_lineno or 0) - node.lineno + 1
                if lines > 15:
                    long.append(f"{path.name}:{node.name} has {lines} lines")
    assert [] == long


def test_every_package_is_described() -> None:
    """A reader finds each package in the table, and each package in the table exists."""
    described = {path.strip("` ") for row in PACKAGE_ROWS for path in row[0].split(", ")}
    folders = {
        f"{folder.relative_to(ROOT / PACKAGE)}/"
        for folder in (ROOT / PACKAGE).rglob("*")
        if folder.is_dir() and folder.name != "__pycache__" and TEMPLATE not in folder.relative_to(ROOT / PACKAGE).parts
    }
    in_text = {"delivery/push/starlark/", "ui/pages/", "cli/commands/"}  # named in the row above them
    in_text |= {"testing/conformance/", "testing/demo_api/", "docs/internals/"}
    modules_at_top = {path.name for path in (ROOT / PACKAGE).glob("*.py")} - {"__init__.py"}
    assert folders - in_text | {f"{TEMPLATE}/"} | modules_at_top == described


def test_every_module_of_orchestration_imports_dagster() -> None:
    """Code that runs without Dagster belongs in app."""
    importing = {import_.module for import_ in imports() if top_level(import_.imported) == "dagster"}
    ours = {module for module, _ in modules() if module.startswith("orchestration.")}
    assert ours == {module for module in importing if module.startswith("orchestration.")}


def test_no_package_has_too_many_siblings() -> None:
    """A reader can take in about twenty names at once."""
    siblings = collections.Counter(
        path.parent.relative_to(ROOT) for path in (ROOT / PACKAGE).rglob("*.py") if path.name != "__init__.py"
    )
    assert {} == {str(folder): count for folder, count in siblings.items() if count > MAX_SIBLINGS}


def test_no_two_modules_have_one_name() -> None:
    """A name in a traceback or a search then means one file."""
    names = collections.Counter(
        path.stem for path in (ROOT / PACKAGE).rglob("*.py") if path.stem not in ("__init__", "__main__")
    )
    assert set(SAME_MODULE_NAMES) == {name for name, count in names.items() if count > 1}


def test_no_two_classes_have_one_name() -> None:
    """One thing has one name, and one name means one thing."""
    names = collections.Counter(
        node.name for _, tree in modules() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
    )
    assert [] == [name for name, count in names.items() if count > 1]
