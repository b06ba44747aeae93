"""The local files of a store: each one is either complete or missing."""

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import fsspec
import pytest
from support.files.tracking_locations import LOCATION_KINDS, open_location

from ondatra_dagster.records.local_storage import (
    LEFTOVER_SECONDS,
    FileStorage,
    LocalStorage,
    make_temporary_name,
    open_storage,
)
from ondatra_dagster.records.parquet_files import CHARACTERS_IN_MEMORY, ROWS_IN_MEMORY, chunk_rows


def write(folder: FileStorage, name: str, content: bytes) -> None:
    with folder.open_writer(name) as file:
        file.write(content)


def test_a_file_is_replaced_completely(tmp_path: Path) -> None:
    folder = LocalStorage(tmp_path)
    write(folder, "a/b/x.json", b"old")
    with folder.open_writer("a/b/x.json") as file:
        file.write(b"new")
        file.flush()
        assert b"old" == (tmp_path / "a/b/x.json").read_bytes()

    assert b"new" == (tmp_path / "a/b/x.json").read_bytes()


def test_an_unfinished_file_has_a_hidden_name(tmp_path: Path) -> None:
    """Users query *.parquet, and that glob of a shell or DuckDB doesn't match hidden names."""
    folder = LocalStorage(tmp_path)
    with folder.open_writer("x.parquet"):
        (part,) = tmp_path.iterdir()
        names = folder.list_names("")

    assert part.name.startswith(".x.parquet.")
    assert part.name.endswith(".part")
    assert [] == names


def test_two_writers_of_the_same_file_do_not_mix(tmp_path: Path) -> None:
    """A schedule and `maintain` both write fact tables, perhaps at the same time."""
    folder = LocalStorage(tmp_path)
    with folder.open_writer("x") as one, folder.open_writer("x") as other:
        one.write(b"1" * 10)
        other.write(b"2" * 5)

    assert b"1" * 10 == (tmp_path / "x").read_bytes()
    assert ["x"] == [path.name for path in tmp_path.iterdir()]


def test_a_killed_process_leaves_a_file_that_the_next_writer_removes(tmp_path: Path) -> None:
    """Otherwise a crash in each run would fill the disk. The unfinished file of a running writer must remain."""
    long_ago = time.time() - LEFTOVER_SECONDS - 60
    for name in (".x.parquet.0000.part", ".y.parquet.0000.part", ".x.parquet.1111.part"):
        (tmp_path / name).write_bytes(b"")
    for name in (".x.parquet.0000.part", ".y.parquet.0000.part"):
        os.utime(tmp_path / name, (long_ago, long_ago))

    write(LocalStorage(tmp_path), "x.parquet", b"1")

    assert {".x.parquet.1111.part", ".y.parquet.0000.part", "x.parquet"} == {path.name for path in tmp_path.iterdir()}


DIES = """
import os, sys
from pathlib import Path
from ondatra_dagster.records.local_storage import LocalStorage
with LocalStorage(Path(sys.argv[1])).open_writer("a/b/x.parquet") as file:
    file.write(b"half")
    file.flush()
    os._exit(9)
"""


def test_old_files_of_a_killed_process_are_removed(tmp_path: Path) -> None:
    """Its run continues under another name, so no process writes that file again."""
    folder = LocalStorage(tmp_path)
    assert 9 == subprocess.run([sys.executable, "-c", DIES, str(tmp_path)], check=False).returncode
    write(folder, "a/b/y.parquet", b"whole")
    assert [] == folder.remove_leftovers("a", before=time.time() - 60)
    with folder.open_writer("a/z.parquet") as file:
        file.write(b"new")
        file.flush()
        (temporary_file,) = (tmp_path / "a/b").glob(".*")
        os.utime(temporary_file, (1, 1))
        assert [4] == folder.remove_leftovers("", before=time.time() - 60)
    assert ["a/b/y.parquet", "a/z.parquet"] == sorted(
        str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()
    )
    assert [] == folder.remove_leftovers("nowhere", before=time.time())


@pytest.mark.parametrize("kind", ["folder", "fsspec"])
def test_unfinished_files_are_distinguished_from_other_hidden_files(
    kind: str, tmp_path: Path, s3_variables: Mapping[str, str]
) -> None:
    """A folder that the user has made may contain the user's own hidden files."""
    for at in open_location(kind, tmp_path / "x", s3_variables):
        folder = open_storage(at.address)
        write(folder, "a/b/x.parquet", b"1")
        for name in (make_temporary_name("x.parquet"), ".DS_Store", ".y.part", f"{make_temporary_name('z')}s"):
            at.write_file(f"a/b/{name}", b"123")
        assert [] == folder.remove_leftovers("a", before=time.time() - 60)
        assert [3] == folder.remove_leftovers("a", before=time.time() + 60)
        assert [] == folder.remove_leftovers("a", before=time.time() + 60)
        assert 4 == len(at.list_files("a/b"))
        assert [] == folder.remove_leftovers("nowhere", before=time.time() + 60)


@pytest.mark.parametrize("kind", LOCATION_KINDS)
def test_hidden_files_are_removed_with_their_folder(kind: str, tmp_path: Path, s3_variables: Mapping[str, str]) -> None:
    """Otherwise a folder that looks empty could never be removed."""
    for at in open_location(kind, tmp_path / "x", s3_variables):
        folder = open_storage(at.address)
        write(folder, "a/b/x.parquet", b"1")
        at.write_file(f"a/b/{make_temporary_name('x.parquet')}", b"123")
        at.write_file("a/b/.DS_Store", b"12")
        folder.remove_file("a/b/x.parquet")
        folder.remove_file("a/b")
        assert [] == folder.list_names("a")
        assert [] == at.list_files()


def test_chunks_are_limited_by_rows_and_by_text() -> None:
    """A row may be a whole invoice, and ten thousand invoices don't fit in memory."""
    small = [(n,) for n in range(ROWS_IN_MEMORY + 1)]
    large = [(n,) for n in range(5)]

    assert [ROWS_IN_MEMORY, 1] == [len(part) for part in chunk_rows(small, weigh=lambda _: 1)]
    assert [2, 2, 1] == [len(part) for part in chunk_rows(large, weigh=lambda _: CHARACTERS_IN_MEMORY // 2)]
    assert [] == list(chunk_rows([], weigh=len))


@pytest.mark.parametrize("kind", LOCATION_KINDS)
def test_an_empty_folder_can_be_removed(kind: str, tmp_path: Path, s3_variables: Mapping[str, str]) -> None:
    """A missing folder is no error, because two processes may clean up at the same time."""
    for at in open_location(kind, tmp_path / "x", s3_variables):
        folder = open_storage(at.address)
        write(folder, "a/b/x.json", b"1")
        for name in ("a/b/x.json", "a/b", "a/b/x.json", "a/b", "a"):
            folder.remove_file(name)

        assert [] == folder.list_names("a") == folder.list_names("")


def test_an_interrupted_upload_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a file is visible during its upload, it has a hidden name until the end."""
    folder = open_storage("memory://broken")
    memory = fsspec.filesystem("memory")

    def interrupted(*_: object) -> None:
        assert [] == folder.list_names("a")
        raise KeyboardInterrupt

    monkeypatch.setattr(memory, "mv", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write(folder, "a/x.parquet", b"1")

    assert [] == memory.ls("/broken/a")
