"""The JSON files with many values. They are never read as one value: the other values would be lost silently."""

import gzip
from pathlib import Path

import pytest

from ondatra_dagster.project.model import FileInput
from ondatra_dagster.project.settings.read_settings_and_defaults import read_settings
from ondatra_dagster.warehouse.query_inputs.inconsistent_files import multiline_json_problem


def told(root: Path, path: str, **options: str) -> str | None:
    source = FileInput(format="json", path=path, options=tuple(options.items()))
    return multiline_json_problem(read_settings(root, {}), source)


@pytest.mark.parametrize("content", [b'{"id": 1}\n{"id": 2}\n', b"\xef\xbb\xbf\n[1]\n\n[2]", b'{"id": 1}\nnot JSON'])
def test_one_value_per_line_is_refused_with_multi_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "x.json").write_bytes(content)
    (tmp_path / "in" / "y.json.gz").write_bytes(gzip.compress(content))
    expected = "has one JSON value per line, and 'multiLine' reads only the first; remove the option"
    assert f"in/x.json {expected}" == told(tmp_path, "in", multiLine="true")
    assert f"in/y.json.gz {expected}" == told(tmp_path, "in/*.gz", MULTILINE="True")
    assert told(tmp_path, "in") is None


@pytest.mark.parametrize(
    "content", [b'[{"id": 1}, {"id": 2}]\n\n', b'{\n  "id": 1\n}\n', b"", b"\n\n", b'[{"id": 1},\n{"id": 2}]']
)
def test_one_value_may_have_many_lines(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.json").write_bytes(content)
    assert told(tmp_path, "x.json", multiLine="true") is None
