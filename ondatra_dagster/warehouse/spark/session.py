"""The one Spark session of a process. It starts when it is first needed, is silent, and ends with the process.

A setting says where Spark runs. model_run and change_feed use the session.
"""

import contextlib
import dataclasses
import logging
import shlex
import threading
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

import py4j
from py4j.clientserver import ClientServer
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext, StatusTracker
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from ondatra_dagster import interruption
from ondatra_dagster.count_time_and_size_format import format_count, format_size
from ondatra_dagster.errors import SparkSetupError, WarehouseError
from ondatra_dagster.interruption import InterruptedRunError
from ondatra_dagster.planning.find_table_and_columns import table_path
from ondatra_dagster.project.settings.read_settings_and_defaults import Settings
from ondatra_dagster.project.settings.storage_access import SPARK_S3_PREFIX as S3A
from ondatra_dagster.storage.private_files import make_state_folder_private
from ondatra_dagster.warehouse.spark.engine_client import EngineLease, EngineUnavailableError, open_lease
from ondatra_dagster.warehouse.spark.engine_files import EngineLaunch
from ondatra_dagster.warehouse.spark.engine_session import EngineSession
from ondatra_dagster.warehouse.spark.error_messages import explain_spark_errors
from ondatra_dagster.warehouse.spark.jar_download import FetchListener, fetch_needed_jars
from ondatra_dagster.warehouse.spark.java_finder import find_java
from ondatra_dagster.warehouse.spark.jvm_process import UTC_OPTION, Jvm, JvmLaunch, class_archive_path, start_locked_jvm
from ondatra_dagster.warehouse.spark.memory_and_tuning_by_work_size import (
    DEFAULT_MEMORY,
    LOCAL_JVM_OPTIONS,
    SMALL_WORK_CONF,
    compiler_options,
)
from ondatra_dagster.warehouse.spark.spark_connect import connect_to_server, interrupt_session
from ondatra_dagster.warehouse.spark.table_locks import SessionLocks

DELTA_CONF = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
RESULT_CONF = {  # settings that change a query's result
    "spark.sql.session.timeZone": "UTC",
    # with these filters, a row that is filtered out isn't parsed completely, so an error in it isn't found
    "spark.sql.json.filterPushdown.enabled": "false",
    "spark.sql.csv.filterPushdown.enabled": "false",
}
QUIET_CONF = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR"}
LOCAL_CONF = {  # for work on one machine: turns off features that take time before the first row
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.adaptive.enabled": "false",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
    "spark.sql.inMemoryColumnarStorage.compressed": "false",  # persisted rows are kept only for seconds
}
EXECUTOR_OPTIONS = "spark.executor.extraJavaOptions"
STOP_SECONDS = 20
DISABLED_LEVEL = logging.CRITICAL + 1
PY4J_FOLDER = Path(py4j.__file__).parent
# each of these logs a hundred frames of JSON per error
NOISY_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


class Warehouse:
    """The Spark session of one process, and the folder of tables. The first use of `session` starts Spark."""

    def __init__(
        self, settings: Settings, *, java_options: Sequence[str] = (), on_notice: Callable[[str], None] | None = None
    ) -> None:
        self.settings = settings
        self._on_notice = on_notice or logging.getLogger(__name__).info
        self._fetch_progress = JarFetchProgress(self._on_notice)
        # why Spark didn't start: another start would fail too, and isn't tried
        self._start_error: SparkSetupError | None = None
        self._java_options = tuple(java_options)
        self._session: SparkSession | None = None
        self._jvm: Jvm | None = None
        self._lease: EngineLease | None = None
        self._engine_session: EngineSession | None = None
        self._gateway: ClientServer | None = None
        self._session_locks: SessionLocks | None = None
        self._start_lock = threading.Lock()
        self._interruption_hooks = contextlib.ExitStack()
        self._is_closed = False
        self._expected_bytes = 0.0

    def expect_bytes(self, size: float) -> None:
        """Store the maximum number of bytes that will be read. The options for the start of Spark depend on it."""
        self._expected_bytes = max(self._expected_bytes, size)

    @property
    def is_started(self) -> bool:
        return self._session is not None

    @property
    def session(self) -> SparkSession:
        with self._start_lock:
            if self._is_closed:
                raise SparkSetupError("Spark has been ended; run again")
            if self._start_error:
                raise self._start_error
            if self._session is None:
                with interruption.raise_on_signal():
                    try:
                        self._session = self._start()
                    except SparkSetupError as error:
                        self._start_error = error
                        raise
            return self._session

    def start_early(self) -> None:
        """Start Spark in the background. A caller that needs `session` then waits until Spark has started."""
        threading.Thread(target=self._try_to_start, name="start-spark", daemon=True).start()

    def activity(self) -> str:
        """Return what Spark is doing now, as a text for a waiting user.

        The text says how the start goes, or how many tasks are done.
        """
        if not self.is_started:
            if self.settings.spark.remote:
                return "connecting to Spark"
            return self._fetch_progress.status or "Spark is starting"
        if self._jvm is None:  # the status tracker is on another machine
            return ""
        try:
            done_count, task_count = _count_tasks(self.session.sparkContext.statusTracker())
        except (Py4JError, WarehouseError):
            return ""  # Spark has ended, and its caller gets an error from its own call
        return f"Spark has done {done_count} of {format_count(task_count, 'task')}" if task_count else ""

    def table_path(self, model_id: str) -> str:
        return table_path(self.settings, model_id)

    @property
    def locks_folder(self) -> Path:
        dry_run_folder = self.settings.dry_run_folder
        return (dry_run_folder.folder if dry_run_folder else self.settings.state) / "locks"

    def close(self) -> None:
        """End the session and its JVM. Do nothing if no session was started."""
        with self._start_lock:  # wait for a start in progress, because only a started session can be ended
            self._is_closed = True
            self._stop()

    def _stop(self) -> None:
        try:
            self._stop_session()
        finally:
            self._stop_jvm()
            self._interruption_hooks.close()
            if self._session_locks is not None:
                self._session_locks.release()
                self._session_locks = None

    def _stop_session(self) -> None:
        session, self._session = self._session, None
        if session is None:
            return
        if self._lease is not None:
            self._close_lease()
            return
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)  # the warnings are about a JVM that has ended
                session.stop()
        except Py4JError:
            if interruption.received_signal() is None:
                raise

    def _close_lease(self) -> None:
        """Close the session in the engine and the lease. Do nothing if this process uses no engine."""
        engine_session, self._engine_session = self._engine_session, None
        lease, self._lease = self._lease, None
        if engine_session is not None:
            engine_session.close()
        if lease is not None:
            lease.close()

    def _stop_jvm(self) -> None:
        if self._gateway is not None:
            # without this, objects that Python frees later look for the ended JVM, and print errors to stderr
            self._gateway.shutdown()
            self._gateway = None
        if self._jvm is not None:
            self._jvm.stop(wait_seconds=STOP_SECONDS)
            self._jvm = None
            SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001 - else the next session looks for this JVM

    def __enter__(self) -> "Warehouse":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _try_to_start(self) -> None:
        try:
            _ = self.session
        except (WarehouseError, InterruptedRunError):
            logging.getLogger(__name__).debug("Spark did not start early; its first use reports why")

    def _start(self) -> SparkSession:
        _silence_pyspark()
        make_state_folder_private(self.settings.state)
        if self.settings.spark.remote:
            session = connect_to_server(self.settings.spark.remote, {**self.settings.spark.conf, **RESULT_CONF})
            self._interruption_hooks.enter_context(interruption.on_interruption(lambda: interrupt_session(session)))
            return session
        if self.settings.engine.is_on and not self._java_options:
            with contextlib.suppress(EngineUnavailableError):
                return self._use_engine()
        return self._start_driver()

    def _use_engine(self) -> SparkSession:
        """Return a session in the engine. If it can't be used, report why and raise EngineUnavailableError."""
        jvm = _driver_launch(self.settings, (), (), self._fetch_progress)
        # other users of the machine can reach Spark's ports, which stay open between runs
        jvm = dataclasses.replace(jvm, conf={**jvm.conf, "spark.authenticate": "true"})
        launch = EngineLaunch(
            state=self.settings.state,
            jvm=jvm,
            secret_conf=_secret_conf(self.settings),
            idle_seconds=self.settings.engine.idle_minutes * 60,
        )
        try:
            self._lease = open_lease(launch, self.locks_folder / "sessions", on_notice=self._on_notice)
            self._interruption_hooks.enter_context(interruption.on_interruption(self._lease.cancel))
            self._engine_session = EngineSession(self._lease)
        except EngineUnavailableError as error:
            self._on_notice(f"{error}; this run starts its own Spark")
            self._close_lease()
            raise
        return self._engine_session.session

    def _start_driver(self) -> SparkSession:
        compiler = compiler_options(self._expected_bytes)
        launch = _driver_launch(self.settings, self._java_options, compiler, self._fetch_progress)
        self._jvm, self._session_locks = start_locked_jvm(launch, self.locks_folder / "sessions")
        self._interruption_hooks.enter_context(interruption.on_interruption(self._jvm.terminate_soon))
        gateway = self._gateway = self._jvm.connect()
        conf = SparkConf(_jvm=gateway.jvm).setAll(list(_secret_conf(self.settings).items()))
        with explain_spark_errors(f"Spark could not start at {self.settings.spark.master}", raises=SparkSetupError):
            return SparkSession(SparkContext(gateway=gateway, conf=conf))


class JarFetchProgress(FetchListener):
    """A listener that shows the progress of a jar fetch in a run: a notice at its start, and the current status."""

    def __init__(self, on_notice: Callable[[str], None]) -> None:
        self._on_notice = on_notice
        self.status = ""

    def on_start(self, message: str) -> None:
        self._on_notice(message)

    def on_progress(self, received_bytes: int, total: int) -> None:
        self.status = (
            ""
            if received_bytes >= total
            else f"{format_size(received_bytes)} of {format_size(total)} of the jars are here"
        )


def _driver_launch(
    settings: Settings, java_options: Sequence[str], compiler: Sequence[str], listener: FetchListener
) -> JvmLaunch:
    """Return how to start the driver's JVM: for Spark on this machine, or for the cluster that spark.master names."""
    java = find_java(settings.java_home, setting_name=settings.java_home_setting)
    jars = list(fetch_needed_jars(settings, listener))
    conf = _driver_conf(settings, jars)
    local_options = (*LOCAL_JVM_OPTIONS, *compiler) if settings.spark.master.startswith("local") else ()
    conf_options = shlex.split(conf.get("spark.driver.extraJavaOptions", ""))
    memory = conf.get("spark.driver.memory", DEFAULT_MEMORY)
    archive = class_archive_path(java, jars)
    archive_options = (f"-XX:SharedArchiveFile={archive}",) if archive.exists() and not java_options else ()
    return JvmLaunch(
        java=java,
        conf=conf,
        log=settings.state / "logs" / "spark.log",
        jars=jars,
        options=(
            f"-Xmx{memory}",
            *local_options,
            *archive_options,
            "-Xlog:disable",
            "-Xlog:all=off",
            *java_options,
            *conf_options,
        ),
    )


def _driver_conf(settings: Settings, jars: Sequence[Path]) -> dict[str, str]:
    """Return Spark's settings for the driver. The user's settings override the defaults, but not RESULT_CONF."""
    master = settings.spark.master
    if master.startswith("local"):
        master_conf = {
            **LOCAL_CONF,
            "spark.sql.warehouse.dir": str(settings.state / "spark-warehouse"),
            **SMALL_WORK_CONF,
        }
    else:
        master_conf = {"spark.jars": ",".join(str(jar) for jar in jars)}  # the machines of the cluster need the jars
    default_conf = {"spark.master": master, "spark.app.name": "ondatra", **QUIET_CONF, **master_conf, **DELTA_CONF}
    conf = {**default_conf, **settings.spark.conf, **RESULT_CONF}
    conf = {name: value for name, value in conf.items() if not name.startswith(S3A)}
    conf[EXECUTOR_OPTIONS] = f"{UTC_OPTION} {conf.get(EXECUTOR_OPTIONS, '')}".strip()
    return conf


def _count_tasks(tracker: StatusTracker) -> tuple[int, int]:
    """Return how many tasks the active stages have done, and how many they have in total."""
    stages = [stage for stage_id in tracker.getActiveStageIds() if (stage := tracker.getStageInfo(stage_id))]
    return sum(stage.numCompletedTasks for stage in stages), sum(stage.numTasks for stage in stages)


def _secret_conf(settings: Settings) -> dict[str, str]:
    """Return the settings that may contain keys.

    The JVM gets them after its start, because any user of the machine can read a command line.
    """
    s3a_conf = {name: value for name, value in settings.spark.conf.items() if name.startswith(S3A)}
    return {**(settings.s3.spark_conf() if settings.uses_s3 else {}), **s3a_conf}


def _silence_pyspark() -> None:
    # set the level: a later configuration of logging would enable a logger that is only disabled
    for name in NOISY_LOGGERS:
        PySparkLogger.getLogger(name).setLevel(DISABLED_LEVEL)
    # py4j also logs errors that its caller gets and reports
    logging.getLogger("py4j").setLevel(DISABLED_LEVEL)
    logging.getLogger().addFilter(_is_not_from_py4j)


def _is_not_from_py4j(record: logging.LogRecord) -> bool:
    """Return whether a record comes from other code than py4j. py4j also uses the root logger."""
    return PY4J_FOLDER not in Path(record.pathname).parents
