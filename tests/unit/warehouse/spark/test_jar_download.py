"""The download of Spark's jars: once, completely and as pinned. Otherwise the message says what to do."""

import base64
import http.client
import io
import os
import re
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from support.apis.maven_server import MavenRepository, build_jar_set, running_maven_repository

from ondatra_dagster.errors import SparkSetupError
from ondatra_dagster.project.settings.read_settings_and_defaults import AWS_VERSION, DELTA_VERSION, HADOOP_VERSION
from ondatra_dagster.warehouse.spark.jar_download import (
    DELTA_JARS,
    NULL_LISTENER,
    S3A_JARS,
    FetchListener,
    JarSet,
    ProtectedRedirects,
    damaged_jars,
    default_repository,
    fetch_jar_set,
    jar_addresses,
    missing_jars,
)
from ondatra_dagster.warehouse.spark.jars_and_class_archive_setup import main
from ondatra_dagster.warehouse.spark.jvm_process import pyspark_jars

TESTS = Path(__file__).parents[2]
CONTENTS = {"alpha": b"the first jar", "beta": b"another one"}
JARS = build_jar_set(CONTENTS)


@pytest.fixture
def repository() -> Iterator[MavenRepository]:
    with running_maven_repository() as repository:
        repository.add_jars(JARS, CONTENTS)
        yield repository


def names(folder: Path) -> list[str]:
    """Return the names of the folder's files, except the lock."""
    return sorted(path.name for path in folder.iterdir() if path.name != "jars.lock")


def a_process(folder: Path, repository: MavenRepository) -> "subprocess.Popen[str]":
    """Start another process that fetches the same jars."""
    files = [f"{name}={content.decode()}" for name, content in CONTENTS.items()]
    module = [sys.executable, "-m", "support.processes.jar_fetch_process"]
    return subprocess.Popen(
        [*module, folder, repository.url, *files],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), str(TESTS.parent)])},
        stdout=subprocess.PIPE,
        text=True,
    )


class RecordingListener(FetchListener):
    def __init__(self) -> None:
        self.messages: list[str] = []
        self.steps: list[tuple[int, int]] = []

    def on_start(self, message: str) -> None:
        self.messages.append(message)

    def on_progress(self, received_bytes: int, total: int) -> None:
        self.steps.append((received_bytes, total))


def test_jars_are_fetched_once(tmp_path: Path, repository: MavenRepository) -> None:
    folder, heard = tmp_path / "jars", RecordingListener()
    jars = fetch_jar_set(folder, JARS, repository.url, heard)
    assert list(CONTENTS.values()) == [jar.read_bytes() for jar in jars]
    assert [f"fetching the test's jars into {folder}: 24 bytes, once on this machine"] == heard.messages
    assert (24, 24) == heard.steps[-1]
    assert jars == fetch_jar_set(folder, JARS, repository.url, NULL_LISTENER)
    assert 2 == len(repository.requested_paths)


def test_only_missing_jars_are_fetched(tmp_path: Path, repository: MavenRepository) -> None:
    """A jar that the user has put there counts. A truncated one doesn't."""
    (tmp_path / "alpha-1.0.jar").write_bytes(CONTENTS["alpha"])
    (tmp_path / "beta-1.0.jar").write_bytes(CONTENTS["beta"][:-1])
    fetch_jar_set(tmp_path, JARS, repository.url, NULL_LISTENER)
    assert ["/org/example/beta/1.0/beta-1.0.jar"] == repository.requested_paths
    assert [] == damaged_jars(tmp_path, JARS)


def test_a_jar_with_other_content_is_refused(tmp_path: Path, repository: MavenRepository) -> None:
    """A repository, or an attacker between it and this machine, may send another file with the same name."""
    repository.files["/org/example/beta/1.0/beta-1.0.jar"] = b"ANOTHER ONE"
    with pytest.raises(SparkSetupError, match=r"gave a beta-1\.0\.jar that isn't the one pinned"):
        fetch_jar_set(tmp_path, JARS, repository.url, NULL_LISTENER)
    assert ["alpha-1.0.jar"] == names(tmp_path)


def test_a_jar_that_was_changed_later_is_detected_by_its_content(tmp_path: Path, repository: MavenRepository) -> None:
    fetch_jar_set(tmp_path, JARS, repository.url, NULL_LISTENER)
    (tmp_path / "beta-1.0.jar").write_bytes(b"ANOTHER ONE")
    assert [] == missing_jars(tmp_path, JARS)
    assert ["beta"] == [jar.artifact for jar in damaged_jars(tmp_path, JARS)]


def test_only_one_of_two_processes_fetches(tmp_path: Path, repository: MavenRepository) -> None:
    """The second starts while the first is in the middle of a file. It waits, and fetches nothing."""
    second_waits, half_sent = threading.Event(), threading.Event()

    def wait() -> None:
        half_sent.set()
        assert second_waits.wait(60)

    repository.on_half_sent = wait
    with a_process(tmp_path, repository) as first:
        assert half_sent.wait(60)
        with a_process(tmp_path, repository) as second:
            assert second.stdout
            line = second.stdout.readline()
            assert f"waiting for process {first.pid} (fetches jars)" in line
            second_waits.set()
            assert ["done\n"] == second.stdout.readlines()
    assert (0, 0) == (first.returncode, second.returncode)
    assert 2 == len(repository.requested_paths)


def test_a_killed_download_leaves_no_incomplete_jar(tmp_path: Path, repository: MavenRepository) -> None:
    killed, half_sent = threading.Event(), threading.Event()

    def wait() -> None:
        half_sent.set()
        assert killed.wait(60)

    repository.on_half_sent = wait
    with a_process(tmp_path, repository) as process:
        assert half_sent.wait(60)
        process.kill()
    killed.set()
    assert ["alpha", "beta"] == [jar.artifact for jar in missing_jars(tmp_path, JARS)]
    fetch_jar_set(tmp_path, JARS, repository.url, NULL_LISTENER)
    assert ["alpha-1.0.jar", "beta-1.0.jar"] == names(tmp_path)


def test_an_answer_that_ends_early_is_refused(tmp_path: Path, repository: MavenRepository) -> None:
    class BrokenOffError(ConnectionError): ...

    def break_off() -> None:
        raise BrokenOffError

    repository.on_half_sent = break_off
    with pytest.raises(SparkSetupError, match=r"alpha-1\.0\.jar from http://127\.0\.0\.1:\d+"):
        fetch_jar_set(tmp_path, JARS, repository.url, NULL_LISTENER)
    assert [] == names(tmp_path)


def test_without_a_network_the_message_says_what_to_fetch_and_where_to_put_it(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://user:s3cret@127.0.0.1:{server.getsockname()[1]}/maven"
    with pytest.raises(SparkSetupError) as failure:
        fetch_jar_set(tmp_path / "jars", JARS, url, NULL_LISTENER)
    message = str(failure.value)
    assert message.startswith(f"The test's jars are not in {tmp_path / 'jars'} and could not be fetched: alpha-1.0")
    assert "Set maven_mirror in [tool.ondatra]" in message
    assert "the 2 files that `python -m ondatra_dagster.warehouse.spark.jar_download --list` lists" in message
    assert message.endswith(f"and put them into {tmp_path / 'jars'}")
    assert "\n" not in message
    assert "s3cret" not in message


@pytest.mark.parametrize("to", ["http://maven.example.com/x.jar", "ftp://maven.example.com/x.jar"])
def test_a_redirect_from_https_to_http_is_refused(to: str) -> None:
    """Otherwise a mirror's redirects could bypass the protection of `maven_mirror`."""
    request = urllib.request.Request("https://maven.example.com/x.jar")
    arguments = (request, io.BytesIO(), 302, "Found", http.client.HTTPMessage())
    with pytest.raises(urllib.error.URLError, match="it redirects from https to"):
        ProtectedRedirects().redirect_request(*arguments, to)
    assert ProtectedRedirects().redirect_request(*arguments, "https://cdn.example.com/x.jar")


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, repository: MavenRepository) -> None:
    (tmp_path / "jars").write_text("a file")
    with pytest.raises(
        SparkSetupError, match=r"jars and could not be fetched: .*jars is not a folder; move that file elsewhere"
    ):
        fetch_jar_set(tmp_path / "jars", JARS, repository.url, NULL_LISTENER)


def test_a_mirrors_password_is_sent_to_the_mirror(tmp_path: Path, repository: MavenRepository) -> None:
    url = repository.url.replace("http://", "http://ada:p%40ss@")
    fetch_jar_set(tmp_path, JARS, url, NULL_LISTENER)
    assert {"Basic " + base64.b64encode(b"ada:p@ss").decode()} == set(repository.credentials)


def test_the_list_has_the_jars_that_would_be_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ONDATRA_MAVEN_MIRROR", "https://ada:s3cret@maven.example.com/all/")
    assert 0 == main(["--list"])
    listed = capsys.readouterr().out.splitlines()
    path = f"io/delta/delta-storage/{DELTA_VERSION}/delta-storage-{DELTA_VERSION}.jar"
    assert f"https://maven.example.com/all/{path}" in listed
    assert len(DELTA_JARS.jars) == len(listed)
    assert 0 == main(["--list", "s3"])
    assert len(S3A_JARS.jars) == len(capsys.readouterr().out.splitlines())


def versions(jars: JarSet, artifacts: Sequence[str]) -> set[str]:
    versions_by_artifact = {jar.artifact: jar.version for jar in jars.jars}
    return {versions_by_artifact[artifact] for artifact in artifacts}


def test_the_pins_match_the_releases_in_use() -> None:
    """A new release of Delta or pyspark needs new pins. Wrong jars fail with errors of a class loader."""
    assert {DELTA_VERSION} == versions(DELTA_JARS, ["delta-spark_4.2_2.13", "delta-storage"])
    assert {HADOOP_VERSION} == versions(S3A_JARS, ["hadoop-aws"])
    assert {AWS_VERSION} == versions(S3A_JARS, ["s3", "s3-transfer-manager", "sts"])
    assert f"hadoop-client-api-{HADOOP_VERSION}.jar" in {jar.name for jar in pyspark_jars()}


def test_no_jar_is_on_the_class_path_twice() -> None:
    """pyspark brings none of these jars, in any version, and the two sets share none."""
    ours = [jar.artifact for jar in (*DELTA_JARS.jars, *S3A_JARS.jars)]
    assert len(ours) == len(set(ours))
    theirs = {re.sub(r"-\d[\w.+-]*$", "", jar.stem) for jar in pyspark_jars()}
    assert set() == theirs & set(ours)


def test_jars_come_from_the_default_repository_of_sparks_resolver() -> None:
    """A mirror would replace it."""
    assert default_repository().endswith("/maven2")
    assert jar_addresses(None)[0].startswith(f"{default_repository()}/com/fasterxml/")
