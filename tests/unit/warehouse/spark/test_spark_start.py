"""The start of Spark: the messages about the download of jars, and a start that fails."""

from pathlib import Path

import pytest
from support.apis.maven_server import running_maven_repository

from ondatra_dagster.errors import SparkSetupError
from ondatra_dagster.project.settings.read_settings_and_defaults import read_settings
from ondatra_dagster.warehouse.spark.session import JarFetchProgress, Warehouse


def test_a_download_has_a_permanent_line_and_a_progress_line() -> None:
    notices: list[str] = []
    fetch = JarFetchProgress(notices.append)
    fetch.on_start("fetching jars: 14 MB")
    fetch.on_progress(3_100_000, 14_000_000)
    assert (["fetching jars: 14 MB"], "3.1 MB of 14 MB of the jars are here") == (notices, fetch.status)
    fetch.on_progress(14_000_000, 14_000_000)
    assert "" == fetch.status  # now Spark itself starts


def test_a_failed_start_is_not_repeated(tmp_path: Path) -> None:
    """Each model of a run needs Spark, and a network error may take a minute."""
    notices: list[str] = []
    with running_maven_repository() as empty:
        variables = {"ONDATRA_JARS": "jars", "ONDATRA_MAVEN_MIRROR": empty.url}
        with Warehouse(read_settings(tmp_path, variables), on_notice=notices.append) as warehouse:
            for _ in range(2):
                with pytest.raises(SparkSetupError, match="HTTP 404"):
                    _ = warehouse.session
    assert (1, 1) == (len(empty.requested_paths), len(notices))
