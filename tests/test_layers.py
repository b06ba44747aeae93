"""The house has one way for imports, and one home for each library. This walks the imports and holds both."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
ENGINE = "ondatra_dagster"
# each layer may import those before it; those of one row are strangers
LAYERS = (
    ("errors", "wording", "prometheus", "interruption", "log_lines", "clock_jumps"),
    ("changes", "arrivals"),
    ("project",),
    ("store",),
    ("planning",),
    ("warehouse", "delivery"),
    ("tracking",),
    ("sync",),
    ("collector", "operations"),
    ("orchestration",),
    ("browser", "doctor"),
    ("cli",),
)
# what users' tests get stands on delivery, and on what is below that
OF_TESTING = {"delivery", "project", "store", "changes", "errors", "interruption", "testing"}
HOMES = {
    "pyspark": {"warehouse"},
    "delta": {"warehouse"},
    "py4j": {"warehouse"},
    "grpc": {"warehouse.spark_connect"},
    "dagster": {"orchestration"},
    "starlark": {"delivery.push.starlark"},
    "httpx": {"delivery.http"},
    "sqlite3": {"store"},
    "sqlite_utils": {"store"},
    "pyarrow": {
        "warehouse",
        "tracking",
        "planning.delta_log",
        "planning.log_files",
        "planning.s3_objects",
        "planning.live_files",
        "collector.packing",
    },
    "fsspec": {"tracking.remote_files"},
    "click": {"cli", "testing"},
    "starlette": {"browser", "testing"},
    "uvicorn": {"browser", "collector", "testing"},
    "httptools": {"collector.connections"},
    "msgspec": {"collector.quick_look"},
    "sqlglot": {"project"},
    "dotenv": {"project.settings.setting_places"},
}
NOT_ENGINE = ("template",)  # a project of its own, laid down by `ondatra init`


class Import(NamedTuple):
    module: str  # who imports, without the engine's name
    imported: str
    line: int

    def __str__(self) -> str:
        return f"{self.module}:{self.line} imports {self.imported}"


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted((ROOT / ENGINE).rglob("*.py")):
        parts = path.relative_to(ROOT / ENGINE).with_suffix("").parts
        if parts[0] not in NOT_ENGINE:
            yield ".".join(part for part in parts if part != "__init__"), ast.parse(path.read_text())


def imports() -> list[Import]:
    found = []
    for module, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                found += [Import(module, alias.name, node.lineno) for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                found += [Import(module, f"{node.module}.{alias.name}", node.lineno) for alias in node.names]
    return found


def room(module: str) -> str:
    return module.partition(".")[0]


def place(module: str) -> int:
    return next(place for place, layer in enumerate(LAYERS) if room(module) in layer)


def is_below(imported: str, module: str) -> bool:
    """Whether the module may import the other."""
    if room(imported) == room(module):
        return True
    if "testing" in (room(imported), room(module)):
        return room(module) == "testing" and room(imported) in OF_TESTING
    return place(imported) < place(module)


def test_imports_go_one_way() -> None:
    """A room that reaches up can't be understood, or tested, without the whole house."""
    ours = [each for each in imports() if room(each.imported) == ENGINE and each.module]
    wrong = [each for each in ours if not is_below(each.imported.removeprefix(f"{ENGINE}."), each.module)]
    assert [] == list(map(str, wrong))


def test_every_room_has_its_layer() -> None:
    """A new one has to be given its place."""
    known = {room for layer in LAYERS for room in layer} | {"testing"}
    assert {room(module) for module, _ in modules() if module} <= known


@pytest.mark.parametrize(("library", "homes"), HOMES.items(), ids=list(HOMES))
def test_a_library_has_one_home(library: str, homes: set[str]) -> None:
    """Where two rooms know one library, both have to change with it."""
    users = [each for each in imports() if room(each.imported) == library]
    strays = [
        each
        for each in users
        if not any(each.module == home or each.module.startswith(f"{home}.") for home in homes)
    ]
    assert [] == list(map(str, strays))


def test_the_environment_is_read_in_one_place() -> None:
    """Else nobody knows which variables there are, and .env wouldn't win where it should."""
    readers = {
        module
        for module, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv", "environb")
    }
    assert readers <= {"project.settings.settings"}


def test_names_of_types_are_never_put_off() -> None:
    """With `from __future__ import annotations` Dagster refuses `context: dg.AssetExecutionContext`."""
    assert [] == [str(each) for each in imports() if each.imported.startswith("__future__")]


def test_imports_are_absolute() -> None:
    """So that a module can be found by its name."""
    relative = [
        module
        for module, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.level
    ]
    assert [] == relative


def test_packages_load_nothing() -> None:
    """Importing a module must not load its neighbours: the quick commands live on that."""
    packages = {path.parent for path in (ROOT / ENGINE).rglob("__init__.py")}
    names = {".".join(package.relative_to(ROOT / ENGINE).parts) for package in packages}
    inner = {
        name for name in names if room(name) != "testing"
    }  # what users import from may be short for more
    assert [] == [str(each) for each in imports() if each.module in inner]


def test_a_door_into_dagster_is_short() -> None:
    """What Dagster calls gathers, calls one plain function, and reports: at most 15 lines."""
    long = []
    for path in (ROOT / ENGINE / "orchestration").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and any(
                "dg." in ast.unparse(d) for d in node.decorator_list
            ):
                lines = (node.end_lineno or 0) - node.lineno + 1
                if lines > 15:
                    long.append(f"{path.name}:{node.name} has {lines} lines")
    assert [] == long
