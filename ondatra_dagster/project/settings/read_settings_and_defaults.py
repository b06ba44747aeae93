"""The settings of a project, read from [tool.ondatra] of pyproject.toml, the environment and .env.

Only this module reads the environment. A variable takes precedence over .env, and .env over pyproject.toml. This module
doesn't add the variables of .env to the environment, where every child process could read them. `dagster` and `dg` do
add them.
"""

import dataclasses
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

from ondatra_dagster.errors import InvalidSettingsError, Problem
from ondatra_dagster.project.settings.read_raw_setting_entries import (
    EVENTS_TOKEN_VARIABLE,
    PYPROJECT,
    SettingEntry,
    read_dot_env,
    read_pyproject,
    read_setting_variables,
)
from ondatra_dagster.project.settings.setting_names_and_parsers import (
    ANY_ORIGIN,
    FOREVER_VALUE,
    OFF_VALUE,
    SETTING_PARSERS,
    SETTINGS_BY_VARIABLE,
    VARIABLE_PREFIX,
    SettingValueError,
    needs_http_permission,
)
from ondatra_dagster.project.settings.storage_access import S3_SCHEMES, S3Access, read_s3_access, scheme_of
from ondatra_dagster.project.spelling_suggestions import suggest_correction

DELTA_VERSION = "4.4.0"  # a published release; pyproject.toml pins the same version
HADOOP_VERSION = "3.5.0"  # the version in pyspark; the jars for S3 must have the same
AWS_VERSION = "2.35.4"  # the version that this release of Hadoop was built with
PUBLISH_SECONDS = "10"  # a record is written to its file within this time
TRACKING_RETENTION_DAYS = "14"  # how long records stay in .ondatra/tracking
ENGINE_IDLE_MINUTES = "15"
UI_PORT = "8323"  # close to the demo API's port, 8321, but different from it
DAGSTER_URL = "http://127.0.0.1:3000"  # the default address of `dg dev`
TABLE_RETENTION_DAYS = "7"  # how long a table keeps old versions for users; versions that are still needed stay longer
MAINTAIN_AT = "20 3 * * *"  # at night (UTC), when few users are active

JAVA_HOME_VARIABLE = "JAVA_HOME"  # a variable that other programs use too
ALERT_DEFAULTS = {"alerts.rejects": "10%", "alerts.deviation": "off", "alerts.no_success_hours": "24"}
VARIABLE_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")  # ${NAME} in the address of the alerts' webhook
DEFAULT_COLLECTOR_PORT = 8330

SettingTexts: TypeAlias = dict[str, str | dict[str, str]]


class Secrets:
    """The variables of .env and the environment, by name. `repr` and `str` hide their values."""

    __slots__ = ("_variables",)

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = dict(variables)

    def get(self, name: str) -> str | None:
        """Return the variable's value. An empty value counts as not set."""
        return self._variables.get(name) or None

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the variables whose values aren't empty."""
        return tuple(name for name, value in self._variables.items() if value)

    def __repr__(self) -> str:
        return f"Secrets({len(self._variables)} variables)"

    __str__ = __repr__


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SparkSettings:
    """The settings that say where Spark runs. `remote` takes precedence over `master`.

    `remote` and `conf` may hold tokens, so `repr` leaves them out.
    """

    master: str = "local[*]"
    remote: str | None = dataclasses.field(default=None, repr=False)
    conf: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """The settings of the engine, the Spark process that several runs share."""

    is_on: bool = False
    idle_minutes: int = int(ENGINE_IDLE_MINUTES)  # then the engine ends


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class AlertSettings:
    """The settings in [tool.ondatra.alerts]. The webhook may hold a token, so `repr` leaves it out."""

    webhook: str | None = dataclasses.field(default=None, repr=False)  # None: no alerts
    token_env: str | None = None  # the variable that holds a Bearer token
    rejects: float | None = 0.1  # alert from this share of rejected rows among the attempted ones; None: no such alert
    deviation: float | None = None  # alert from this deviation, a share of the mean; None: no such alert
    no_success_hours: float | None = 24

    @property
    def required_variables(self) -> tuple[str, ...]:
        """Return the names of the variables that the alerts need."""
        webhook_variables = VARIABLE_REFERENCE.findall(self.webhook or "")
        return tuple(
            dict.fromkeys([*webhook_variables, *([self.token_env] if self.token_env and self.webhook else [])])
        )


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EventSettings:
    """The settings in [tool.ondatra.events]: the collector's limits, and which clients may send events."""

    unknown_fields: str = "keep"  # keep unknown fields (in _extra), or refuse the event
    max_bytes: int = 1_000_000  # the maximum size of one request
    per_second: int | None = None  # the maximum number of events per second; None: no limit
    max_waiting: int = 10_000_000  # the maximum number of events that aren't in a table yet
    free_bytes: int = 100_000_000  # the disk space that the collector leaves free for other programs
    flush_seconds: int = 60  # the age of the oldest event at which Dagster's sensor requests a run
    hosts: tuple[str, ...] = ()  # the allowed host names of requests, in addition to this machine's own
    origins: tuple[str, ...] = ()  # the origins of pages whose scripts may send events: https://shop.example.com, or *

    @property
    def allows_any_origin(self) -> bool:
        return ANY_ORIGIN in self.origins


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DryRunFolder:
    """A folder for everything that a dry run creates. No other process uses the folder. It is deleted after the run."""

    folder: Path  # the copies of queues, and locks, on this machine
    tables_address: str  # the path or address of the folder with the dry run's tables
    tables: dict[str, str] = dataclasses.field(default_factory=dict)  # model id → where its table is during the dry run


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    root: Path  # the project's folder
    state: Path  # root/.ondatra: everything that ondatra writes except the warehouse
    warehouse: str  # an absolute path or an address such as s3a://bucket/folder
    tracking: str  # an absolute path or an address, for records
    jars: Path  # the folder of Delta's jars
    spark: SparkSettings = SparkSettings()
    engine: EngineSettings = EngineSettings()
    s3: S3Access = dataclasses.field(default_factory=S3Access)  # the access to s3a:// addresses
    publish_seconds: int = int(PUBLISH_SECONDS)
    tracking_retention_days: int | None = None  # how long records stay in the tracking store; None: for ever
    table_retention_days: int | None = int(TABLE_RETENTION_DAYS)  # how long tables keep their old versions
    maintain_at: str | None = MAINTAIN_AT  # when Dagster runs the maintenance, in cron syntax; None: never
    sinks: str = "on"  # on, dry or off
    alerts: AlertSettings = dataclasses.field(default_factory=AlertSettings)
    organization: str = "1"
    workspace: str = "1"
    sources: Mapping[str, str] = dataclasses.field(default_factory=dict)  # name → catalog.schema or a folder
    ui_port: int = int(UI_PORT)  # the port of the records page on this machine
    dagster_url: str = DAGSTER_URL  # the address of Dagster's UI
    maven_mirror: str | None = None
    java_home: Path | None = None
    java_home_setting: str = JAVA_HOME_VARIABLE  # the setting or variable that java_home comes from, for messages
    events: EventSettings = dataclasses.field(default_factory=EventSettings)
    secrets: Secrets = dataclasses.field(default_factory=lambda: Secrets({}), compare=False)
    dry_run_folder: DryRunFolder | None = None  # only set in a dry run; the user can't set it

    @property
    def uses_s3(self) -> bool:
        """Return whether the warehouse or a source has an address on S3."""
        return any(scheme_of(address) in S3_SCHEMES for address in (self.warehouse, *self.sources.values()))

    def secret(self, name: str) -> str | None:
        """Return the value of a variable in the environment or else in .env; None if it is set in neither."""
        return self.secrets.get(name)


def read_settings(root: Path, environ: Mapping[str, str] | None = None) -> Settings:
    """Return the settings of the project at `root`; raise InvalidSettingsError with all problems."""
    root = root.resolve()
    environ = os.environ if environ is None else environ
    variables = {**read_dot_env(root), **environ}
    texts: SettingTexts = {}
    places: dict[str, SettingEntry] = {}  # setting → the entry that set it
    problems: list[Problem] = []
    refused_names: set[str] = set()
    for entry in (*read_pyproject(root), *read_setting_variables(variables)):
        try:
            _apply_entry(entry, texts)
            places[entry.name] = entry
        except SettingValueError as error:
            description, _, remedy = str(error).partition("; ")
            problems.append(Problem(file=entry.file, line=entry.line, description=description, remedy=remedy))
            refused_names.add(entry.name)
    if needs_http_permission(texts):
        description = "maven_mirror is an http:// address: others can read its password and change its files"
        remedy = 'write https://…, or allow it by maven_http = "on"'
        mirror = places["maven_mirror"]
        problems.append(Problem(file=mirror.file, line=mirror.line, description=description, remedy=remedy))
    settings = _build_settings(root, texts, variables)
    if "java_home" in places:
        file = places["java_home"].file
        setting_name = f"java_home in {file}" if file == PYPROJECT else file
        settings = dataclasses.replace(settings, java_home_setting=setting_name)
    if problems:
        # without the sources, every model that reads a source would be reported as wrong
        raise InvalidSettingsError(problems, usable=None if "sources" in refused_names else settings)
    return settings


def _apply_entry(entry: SettingEntry, settings_by_name: SettingTexts) -> None:
    """Store a setting's value over an earlier one. The names in a table such as `sources` are stored one by one."""
    if entry.name not in SETTING_PARSERS:
        known_names = (
            (*SETTINGS_BY_VARIABLE, EVENTS_TOKEN_VARIABLE)
            if entry.name.startswith(VARIABLE_PREFIX)
            else SETTING_PARSERS
        )
        raise SettingValueError(
            f"{entry.name!r} is not a setting; {suggest_correction(entry.name, known_names, plural='settings')}"
        )
    value = SETTING_PARSERS[entry.name](entry.value)
    earlier_value = settings_by_name.get(entry.name)
    settings_by_name[entry.name] = (
        {**earlier_value, **value} if isinstance(earlier_value, dict) and isinstance(value, dict) else value
    )


def _build_settings(root: Path, settings_by_name: SettingTexts, variables: Mapping[str, str]) -> Settings:
    """Return the settings with their defaults. Paths are absolute, so they don't depend on the current folder."""
    texts = {name: value for name, value in settings_by_name.items() if isinstance(value, str)}
    tables = {name: value for name, value in settings_by_name.items() if isinstance(value, dict)}
    state = root / ".ondatra"
    secrets = Secrets(variables)
    java_home = texts.get("java_home") or secrets.get("JAVA_HOME")
    return Settings(
        root=root,
        state=state,
        warehouse=_absolute_address(root, texts.get("warehouse", str(state / "warehouse"))),
        tracking=_absolute_address(root, texts.get("tracking", str(state / "tracking"))),
        jars=_absolute_path(root, texts["jars"])
        if "jars" in texts
        else _cache_folder(secrets) / "jars" / DELTA_VERSION,
        spark=SparkSettings(
            master=texts.get("spark.master", "local[*]"),
            remote=texts.get("spark.remote"),
            conf=tables.get("spark.conf", {}),
        ),
        engine=_read_engine_settings(texts),
        s3=read_s3_access(variables, tables.get("spark.conf", {})),
        publish_seconds=int(texts.get("publish_seconds", PUBLISH_SECONDS)),
        tracking_retention_days=_parse_days(
            # records are only deleted in our own folder; the user cleans up a folder that they chose
            texts.get("tracking_retention_days", FOREVER_VALUE if "tracking" in texts else TRACKING_RETENTION_DAYS)
        ),
        table_retention_days=_parse_days(texts.get("table_retention_days", TABLE_RETENTION_DAYS)),
        maintain_at=None if texts.get("maintain_at") == OFF_VALUE else texts.get("maintain_at", MAINTAIN_AT),
        sinks=texts.get("sinks", "on"),
        alerts=_read_alert_settings(texts),
        organization=texts.get("organization", "1"),
        workspace=texts.get("workspace", "1"),
        sources=tables.get("sources", {}),
        ui_port=int(texts.get("ui_port", UI_PORT)),
        dagster_url=texts.get("dagster_url", DAGSTER_URL),
        maven_mirror=texts.get("maven_mirror"),
        java_home=_absolute_path(root, java_home) if java_home else None,
        events=_read_event_settings(texts),
        secrets=secrets,
    )


def _read_engine_settings(texts: Mapping[str, str]) -> EngineSettings:
    """Return the engine's settings. With spark.remote it is off, because that server already stays between runs."""
    return EngineSettings(
        is_on=texts.get("engine") == "on" and "spark.remote" not in texts,
        idle_minutes=int(texts.get("engine_idle_minutes", ENGINE_IDLE_MINUTES)),
    )


def _read_alert_settings(texts: Mapping[str, str]) -> AlertSettings:
    """Return the alert settings, built from the texts of the separate settings."""
    texts = {**ALERT_DEFAULTS, **texts}
    hours = texts["alerts.no_success_hours"]
    return AlertSettings(
        webhook=texts.get("alerts.webhook"),
        token_env=texts.get("alerts.token_env"),
        rejects=_parse_share(texts["alerts.rejects"]),
        deviation=_parse_share(texts["alerts.deviation"]),
        no_success_hours=None if hours == OFF_VALUE else float(hours),
    )


def _parse_share(text: str) -> float | None:
    return None if text == OFF_VALUE else float(text.removesuffix("%")) / 100


def _read_event_settings(texts: Mapping[str, str]) -> EventSettings:
    """Return the event settings, built from the texts of the separate settings."""
    event_texts = {name.removeprefix("events."): text for name, text in texts.items() if name.startswith("events.")}
    numbers = {name: int(text) for name, text in event_texts.items() if re.fullmatch(r"[0-9]+", text)}
    origins, hosts = (tuple(event_texts.get(name, "").split()) for name in ("origins", "hosts"))
    unknown_fields = event_texts.get("unknown_fields", "keep")
    return EventSettings(hosts=hosts, origins=origins, unknown_fields=unknown_fields, **numbers)


def _parse_days(text: str) -> int | None:
    return None if text == FOREVER_VALUE else int(text)


def _absolute_path(root: Path, text: str) -> Path:
    return root / Path(text).expanduser()


def _absolute_address(root: Path, text: str) -> str:
    return text if "://" in text else str(_absolute_path(root, text))


def _cache_folder(secrets: Secrets) -> Path:
    """Return the user's cache folder: the folder that XDG or Windows names, otherwise ~/.cache."""
    folder = secrets.get("XDG_CACHE_HOME") or secrets.get("LOCALAPPDATA")
    return Path(folder) / "ondatra" if folder else Path("~/.cache/ondatra").expanduser()
