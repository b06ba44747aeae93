"""The folder of a dry run: it is removed at the end, and the next dry run removes that of a killed one."""

import dataclasses
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyarrow.fs import FileSelector
from support.apis.moto_s3_server import BUCKET, running_moto_s3

from ondatra_dagster.app.dry_run_service import open_dry_run_folder, remove_dead_dry_run_folders
from ondatra_dagster.project.settings.read_settings_and_defaults import Settings, SparkSettings, read_settings
from ondatra_dagster.storage.file_lock import FileLock
from ondatra_dagster.storage.s3_filesystem_and_listing import bucket_path, open_s3_filesystem

HOLDS = """
import sys
from pathlib import Path
from ondatra_dagster.app.dry_run_service import open_dry_run_folder
from ondatra_dagster.project.settings.read_settings_and_defaults import read_settings
with open_dry_run_folder(read_settings(Path(sys.argv[1]), {})) as settings:
    print(settings.dry_run_folder.folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return read_settings(tmp_path, {})


@pytest.fixture
def other_dry_run(settings: Settings) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """Yield a dry run in another process, and its folder."""
    words = [sys.executable, "-c", HOLDS, str(settings.root)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        yield process, Path(process.stdout.readline().strip())
        process.kill()


def test_the_folder_is_private_and_is_removed_also_after_a_failure(settings: Settings) -> None:
    """It contains customers' rows."""

    def fail() -> None:
        with open_dry_run_folder(settings) as dry:
            assert dry.dry_run_folder
            folder = dry.dry_run_folder.folder
            assert {0o700} == {stat.S_IMODE(path.stat().st_mode) for path in (folder.parent, folder)}
            (folder / "tables" / "mart").mkdir(parents=True)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not (settings.state / "dry").exists()
    assert [] == list((settings.state / "locks" / "dry").iterdir())


def test_the_folder_of_a_running_dry_run_is_kept(
    settings: Settings, other_dry_run: tuple[subprocess.Popen[str], Path]
) -> None:
    """Two dry runs may run at the same time."""
    _, folder = other_dry_run
    with open_dry_run_folder(settings) as dry:
        assert dry.dry_run_folder
        assert dry.dry_run_folder.folder != folder
        assert folder.exists()
    assert folder.exists()


def test_the_folder_of_a_killed_dry_run_is_removed(
    settings: Settings, other_dry_run: tuple[subprocess.Popen[str], Path]
) -> None:
    """The next dry run removes it, because no other command does."""
    process, folder = other_dry_run
    process.kill()
    process.wait()
    assert folder.exists()
    with open_dry_run_folder(settings):
        assert not folder.exists()


def test_the_folder_is_kept_while_its_jvm_still_writes(settings: Settings) -> None:
    """Files that are written after the removal would remain forever."""
    folder = settings.state / "dry" / "0123456789abcdef"
    java = folder / "locks" / "sessions" / "one.jvm"
    java.parent.mkdir(parents=True)
    with FileLock(java, purpose="is a JVM"):
        remove_dead_dry_run_folders(settings)
        assert folder.exists()
    remove_dead_dry_run_folders(settings)
    assert not folder.exists()


@pytest.mark.parametrize("spark", [SparkSettings(master="spark://host:7077"), SparkSettings(remote="sc://host:15002")])
def test_the_tables_are_next_to_the_warehouse_for_remote_machines(settings: Settings, spark: SparkSettings) -> None:
    """Remote machines don't see this machine's folders. Nothing remains there, either."""
    settings = dataclasses.replace(settings, spark=spark)
    with open_dry_run_folder(settings) as dry:
        assert dry.dry_run_folder
        assert (
            f"{settings.warehouse}/.ondatra_dry/{dry.dry_run_folder.folder.name}" == dry.dry_run_folder.tables_address
        )
        (Path(dry.dry_run_folder.tables_address) / "mart" / "things").mkdir(parents=True)
    assert not (Path(settings.warehouse) / ".ondatra_dry").exists()


@pytest.mark.soak
def test_nothing_remains_on_s3(tmp_path: Path) -> None:
    """The tables are next to the warehouse there. Other files in the bucket are kept."""
    with running_moto_s3() as access:
        settings = read_settings(tmp_path, {**access, "ONDATRA_WAREHOUSE": f"s3a://{BUCKET}/ware"})
        files = open_s3_filesystem(settings.s3)

        def put(path: str) -> None:
            with files.open_output_stream(path) as file:
                file.write(b"1")

        def there() -> list[str]:
            entries = files.get_file_info(FileSelector(BUCKET, recursive=True))
            return [entry.base_name for entry in entries if entry.is_file]

        put(f"{BUCKET}/ware/mart/things/a.parquet")
        with open_dry_run_folder(settings) as dry:
            assert dry.dry_run_folder
            put(f"{bucket_path(dry.dry_run_folder.tables_address)}/mart/things/b.parquet")
            assert {"a.parquet", "b.parquet"} == set(there())
        assert ["a.parquet"] == there()
