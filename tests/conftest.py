"""The fixtures and hooks of all tests. A run has one JVM for Spark, which starts when a test first needs it."""

import gc
import logging
import os
import secrets
import shutil
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from support.random_histories import random_seeds
from xdist.scheduler import LoadScopeScheduling

from ondatra_dagster.project.settings.read_settings_and_defaults import read_settings

if TYPE_CHECKING:
    from support.files.tracking_locations import TrackingLocation

    from ondatra_dagster.testing.demo_api import DemoApi
    from ondatra_dagster.warehouse.spark.session import Warehouse

SPARK_TEST_FOLDERS = ("tests/spark/", "tests/acceptance/", "tests/ui/")
OWN_JVM_TESTS = (
    "tests/faults/test_interrupted_",
    "tests/acceptance/test_wheel",
    "tests/faults/test_killed_",
    "tests/soak/test_pictures",
    "tests/soak/test_simulated_day",
    "tests/soak/test_killed_event_",
    "tests/soak/test_remote_",
)


MEMORY_FOLDER = Path("/dev/shm")
MEMORY_BYTES = 4 << 30  # the unit tests of one run take 0.3 GB


class SparkFilesFirst(LoadScopeScheduling):
    """A scheduler that distributes tests one by one, but those with Spark by file and first: they take longest.

    Tests that start their own JVMs run one after another: memory and time suffice for one.
    """

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(OWN_JVM_TESTS):
            return "JVMs"
        return nodeid.partition("::")[0] if nodeid.startswith(SPARK_TEST_FOLDERS) else nodeid


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> SparkFilesFirst:
    return SparkFilesFirst(config, log)


@pytest.hookimpl(tryfirst=True)  # before hypothesis reads its option
def pytest_configure(config: pytest.Config) -> None:
    """Give one seed to the random tests, hypothesis, all workers and all child processes of this run."""
    os.environ[random_seeds.SEED_VARIABLE] = random_seeds.run_seed()
    if config.getoption("hypothesis_seed", None) is None:
        config.option.hypothesis_seed = random_seeds.seed_to_int(random_seeds.run_seed())
    # the speed of this machine says nothing about the code
    hypothesis_settings.register_profile(
        "tests",
        deadline=None,
        derandomize=False,  # hypothesis turns it on where CI is set, and then no seed changes what it draws
        suppress_health_check=[HealthCheck.too_slow],
    )
    hypothesis_settings.load_profile("tests")
    use_memory_folder()


def use_memory_folder() -> None:
    """Put the tests' folders in memory, where there is room: an fsync takes 2 ms on a busy disk, and no time there.

    Tests kill processes and not machines, so no test can notice whether a disk has the bytes.
    Some tests start programs that they write, which a container's memory folder may forbid.
    """
    if not MEMORY_FOLDER.is_dir() or os.statvfs(MEMORY_FOLDER).f_flag & os.ST_NOEXEC:
        return
    if shutil.disk_usage(MEMORY_FOLDER).free > MEMORY_BYTES:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY_FOLDER))  # pytest's own variable


def pytest_collection() -> None:
    """Collect tests without Python's garbage collector: hardly any object of the collection is garbage."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Exclude modules and tests from all later garbage collections."""
    gc.enable()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Allow all objects to be freed at the end: libraries in C complain about objects that are left."""
    gc.unfreeze()


def pytest_report_header() -> str:
    return f"random seed: {random_seeds.run_seed()} (of the commit, unless {random_seeds.SEED_VARIABLE} gives another)"


def pytest_runtest_setup() -> None:
    random_seeds.clear_drawn_seeds()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the command that repeats a failed random test to its report."""
    report = yield
    uses_hypothesis = getattr(getattr(item, "obj", None), "is_hypothesis_test", False)
    command = random_seeds.replay_command(item.nodeid, uses_hypothesis=uses_hypothesis)
    if report.failed and command:
        report.sections.append(("replay with the same random seed", command))
    return report


def read_spark_variables() -> dict[str, str]:
    """Return the settings of the tests' Spark: local, unless ONDATRA_TEST_SPARK_MASTER and others change them."""
    elsewhere = {
        name.replace("ONDATRA_TEST_", "ONDATRA_"): value
        for name, value in os.environ.items()
        if name.startswith(("ONDATRA_TEST_SPARK_", "ONDATRA_TEST_WAREHOUSE", "AWS_"))
    }
    return {"ONDATRA_SPARK_MASTER": "local[2]", **elsewhere}


@pytest.fixture(scope="session")
def shared_warehouse(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Warehouse]":
    """Yield the warehouse whose session all tests of a worker use; all workers use one JVM."""
    from support.spark.shared_jvm import shared_session

    settings = read_settings(tmp_path_factory.mktemp("spark"), read_spark_variables())
    folder = tmp_path_factory.getbasetemp()
    with shared_session(settings, folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) as warehouse:
        yield warehouse


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return a folder for the test; with Spark, one whose path no earlier test had.

    Pytest gives the path of a removed folder to the next test. All tests share one JVM, in which Delta
    remembers tables by their path.
    """
    if "shared_warehouse" not in request.fixturenames:
        return tmp_path
    folder = tmp_path / secrets.token_hex(4)
    folder.mkdir()
    return folder


@pytest.fixture(scope="session")
def shared_demo_api() -> "Iterator[DemoApi]":
    """Yield the demo API of a worker: starting and ending a server takes 0.2 s."""
    from ondatra_dagster.testing.demo_api import running_demo_api

    with running_demo_api() as api:
        yield api


@pytest.fixture
def api(shared_demo_api: "DemoApi") -> "DemoApi":
    """Return the demo API without records, calls and faults."""
    shared_demo_api.clear()
    return shared_demo_api


DAGSTER_STORAGE = """\
telemetry: {{enabled: false}}
event_log_storage:
  module: dagster._core.storage.event_log
  class: ConsolidatedSqliteEventLogStorage
  config: {{base_dir: {home}/events}}
"""


@pytest.fixture(scope="session")
def dagster_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with one Dagster history for all tests of a worker, in one file.

    Dagster's default is a file for each run, whose schema takes an eighth of a small run's time. A new history
    takes more.
    """
    home = tmp_path_factory.mktemp("dagster")
    (home / "dagster.yaml").write_text(DAGSTER_STORAGE.format(home=home))
    return home


@pytest.fixture(scope="session")
def s3_variables() -> Iterator[Mapping[str, str]]:
    """Yield the variables for the access to a worker's bucket: its server takes a second to start."""
    from support.apis.moto_s3_server import running_moto_s3

    with running_moto_s3() as variables:
        yield variables


@pytest.fixture(params=["folder", "S3", "fsspec"])
def tracking_location(request: pytest.FixtureRequest, tmp_path: Path) -> "Iterator[TrackingLocation]":
    """Yield an empty location for tracking files: a folder, a prefix of a bucket, or one that only fsspec opens."""
    from support.files.tracking_locations import open_location

    variables = request.getfixturevalue("s3_variables") if request.param == "S3" else {}
    yield from open_location(request.param, tmp_path / "tracking", variables)


@pytest.fixture
def captured_output(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> Callable[[], str]:
    """Return a function that gives all logs, at every level, and all output of the test. Call it once."""
    caplog.set_level(logging.DEBUG)
    return lambda: "\n".join([caplog.text, *capfd.readouterr()])
