"""The files that a pattern matches: the same as in Spark. A change of a missed file would never be noticed."""

from pathlib import Path

import pytest

from ondatra_dagster.project.inputs.file_patterns import (
    escape_pattern,
    expand_braces,
    find_matching_paths,
    is_ignored_by_spark,
    walk_files,
)

FILES = (
    *("data/a.csv", "data/b.csv", "data/a1.csv", "data/_SUCCESS", "data/.hidden.csv", "data/sub/c.csv"),
    *("data/day=1/x.csv", "data/_p=1/y.csv", "data/what? [1].csv", "data/{odd}.csv"),
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "a [b] {c}"
    for name in FILES:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    return folder


def found(root: Path, written: str) -> list[str]:
    return [str(path.relative_to(root)) for path in find_matching_paths(root, written)]


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("data/a.csv", ["data/a.csv"]),
        ("data/none.csv", []),
        ("data/a*.csv", ["data/a.csv", "data/a1.csv"]),
        ("data/?.csv", ["data/a.csv", "data/b.csv"]),
        ("data/[ab].csv", ["data/a.csv", "data/b.csv"]),
        ("data/[^a].csv", ["data/b.csv"]),
        ("data/[!a].csv", ["data/b.csv"]),
        ("data/{a,b}.csv", ["data/a.csv", "data/b.csv"]),
        ("data/{a{,1},b}.csv", ["data/a.csv", "data/a1.csv", "data/b.csv"]),
        ("data/{a.csv,sub/*.csv}", ["data/a.csv", "data/sub/c.csv"]),
        ("*/sub/*.csv", ["data/sub/c.csv"]),
        ("data/*=1", ["data/_p=1", "data/day=1"]),
        ("data/_*", ["data/_p=1"]),  # Spark never reads a marker file
        ("data/what? [1].csv", ["data/what? [1].csv"]),  # the file really has this name
        ("data/{odd}.csv", ["data/{odd}.csv"]),
        (r"data/what\? \[1\].csv", ["data/what? [1].csv"]),
        ("data/../data/./a.csv", ["data/../data/a.csv"]),
        ("data/a.csv/*", []),
        ("data/[", []),
        ("data/{a", []),
    ],
)
def test_a_pattern_matches_the_same_files_as_in_spark(root, written, expected):
    assert expected == found(root, written)


def test_a_path_may_be_absolute(root, tmp_path):
    (tmp_path / "z.csv").write_text("x")
    assert [tmp_path / "z.csv"] == find_matching_paths(root, f"{tmp_path}/[z].csv")


def test_files_of_a_folder_are_all_below_it(root):
    below = {str(path.relative_to(root)) for path in walk_files(root / "data")}
    assert below == set(FILES) - {"data/_SUCCESS", "data/.hidden.csv"}
    assert [root / "data/a.csv"] == list(walk_files(root / "data/a.csv"))


@pytest.mark.parametrize(
    ("name", "expected"),
    [("_x", True), (".x", True), ("x._COPYING_", True), ("_a=1", False), ("_metadata", False), ("x", False)],
)
def test_files_that_spark_ignores_are_ignored(name, expected):
    assert expected is is_ignored_by_spark(name)


def test_a_path_is_escaped_for_spark():
    """A folder with the name "a [b]" isn't a pattern."""
    assert r"/a \[b\] \{c\}/\\x\*\?" == escape_pattern(r"/a [b] {c}/\x*?")


def test_an_open_brace_is_an_ordinary_character():
    assert ["a{b"] == expand_braces("a{b")
    assert [r"a\{b,c}"] == expand_braces(r"a\{b,c}")
