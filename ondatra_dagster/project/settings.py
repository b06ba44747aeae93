"""What pyproject.toml's [tool.ondatra], the environment and .env say, as one value.

This is the only place that reads the environment. A variable wins over .env, .env wins over pyproject.toml.
What .env says stays here: it is never put into the environment, where every child process could see it.
"""

import dataclasses
import os
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, TypeAlias

import dotenv

from ondatra_dagster.errors import SettingsError
from ondatra_dagster.project import setting_values as values
from ondatra_dagster.project.suggestions import correction, nearest

DELTA_VERSION = "4.4.0"  # the release whose jar is published; pyproject.toml pins the same

READERS: Mapping[str, values.Reader] = {
    "warehouse": values.read_text,
    "spark.master": values.read_text,
    "spark.remote": values.read_text,
    "spark.conf": values.read_conf,
    "sinks": values.read_sinks,
    "tracking": values.read_text,
    "organization": values.read_folder_name,
    "workspace": values.read_folder_name,
    "sources": values.read_sources,
    "jars": values.read_text,
    "maven_mirror": values.read_text,
    "java_home": values.read_text,
}
PREFIX = "ONDATRA_"
TABLES = frozenset({"spark.conf", "sources"})  # settings that are tables of names which the user chooses
VARIABLES = {PREFIX + name.upper().replace(".", "_"): name for name in READERS}
OAUTH_TOKENS = "ONDATRA_OAUTH_TOKEN_"  # secrets that a sink's provider names, not settings
MISSPELLED = 0.9  # how like a setting's variable an unknown ONDATRA_ variable must be to be refused


Chosen: TypeAlias = dict[str, str | dict[str, str]]


class Secrets:
    """The variables of .env and the environment, by name; their values never show."""

    __slots__ = ("_variables",)

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = dict(variables)

    def get(self, name: str) -> str | None:
        """The variable's value; one that is set to nothing counts as not set."""
        return self._variables.get(name) or None

    def __repr__(self) -> str:
        return f"Secrets({len(self._variables)} variables)"

    __str__ = __repr__


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SparkSettings:
    """Where Spark runs. `remote` wins over `master`; it and `conf` may hold tokens, so they don't show."""

    master: str = "local[*]"
    remote: str | None = dataclasses.field(default=None, repr=False)
    conf: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    root: Path  # the project
    state: Path  # root/.ondatra: all that ondatra writes beside the warehouse
    warehouse: str  # an absolute path or an address such as s3a://bucket/folder
    tracking: str  # the same, for records
    jars: Path  # where Delta's jars are kept
    spark: SparkSettings = SparkSettings()
    sinks: str = "on"  # on, dry, off
    organization: str = "1"
    workspace: str = "1"
    sources: Mapping[str, str] = dataclasses.field(default_factory=dict)  # name → catalog.schema or a folder
    maven_mirror: str | None = None
    java_home: Path | None = None
    secrets: Secrets = dataclasses.field(default_factory=lambda: Secrets({}), compare=False)

    def secret(self, name: str) -> str | None:
        """A variable of the environment or .env, the environment first; None when it isn't set."""
        return self.secrets.get(name)


class _Given(NamedTuple):
    place: str  # where it is written, for messages
    name: str
    value: object


def read_settings(root: Path, environ: Mapping[str, str] | None = None) -> Settings:
    """The settings of the project at `root`; raises SettingsError with everything that is wrong."""
    root = root.resolve()
    environ = os.environ if environ is None else environ
    variables = {**_dot_env(root), **environ}
    chosen: Chosen = {}
    problems: list[str] = []
    for given in (*_from_file(root), *_from_variables(variables)):
        try:
            _take(given, chosen)
        except values.BadValueError as bad:
            problems.append(f"{given.place}: {bad}")
    if problems:
        raise SettingsError("\n".join(problems))
    return _settings(root, chosen, variables)


def _take(given: _Given, chosen: Chosen) -> None:
    """Put a setting over what was said of it before; a table's names are put over one by one."""
    if given.name not in READERS:
        known = VARIABLES if given.name.startswith(PREFIX) else READERS
        raise values.BadValueError(
            f"{given.name!r} is not a setting; {correction(given.name, known, plural='settings')}"
        )
    value = READERS[given.name](given.value)
    before = chosen.get(given.name)
    chosen[given.name] = (
        {**before, **value} if isinstance(before, dict) and isinstance(value, dict) else value
    )


def _dot_env(root: Path) -> dict[str, str]:
    """What .env says, as it stands: a password may have a $ in it."""
    try:
        written = dotenv.dotenv_values(root / ".env", interpolate=False, encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(_unreadable(".env", error)) from error
    return {name: value for name, value in written.items() if value is not None}


def _from_file(root: Path) -> Iterator[_Given]:
    """Every setting that pyproject.toml has; a project without that file has none."""
    try:
        text = (root / "pyproject.toml").read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        return
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(_unreadable("pyproject.toml", error)) from error
    for name, value in _named(_section(text)):
        yield _Given(f"pyproject.toml:{_line_of(name, text)}", name, value)


def _section(text: str) -> Mapping[str, object]:
    """What stands in [tool.ondatra]."""
    try:
        tool = tomllib.loads(text).get("tool", {})
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"pyproject.toml: {error}; correct the file") from error
    section = tool.get("ondatra", {}) if isinstance(tool, dict) else tool
    if not isinstance(section, dict):
        raise SettingsError("pyproject.toml: tool.ondatra is not a table; write [tool.ondatra]")
    return section


def _unreadable(file: str, error: OSError | UnicodeDecodeError) -> str:
    if isinstance(error, OSError):
        return f"{file}: the file can't be read: {error.strerror}; make it readable"
    return f"{file}:1: the file is not UTF-8; save it as UTF-8"


def _named(table: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """spark = {master = …} and spark.master = … are the same setting."""
    for name, value in table.items():
        full = prefix + name
        if isinstance(value, Mapping) and full not in TABLES:
            yield from _named(value, full + ".")
        else:
            yield full, value


def _line_of(name: str, text: str) -> int:
    """The line of pyproject.toml that most likely says it: tomllib doesn't tell."""
    last = re.escape(name.rpartition(".")[2])
    section = max(text.find("[tool.ondatra"), 0)
    written = re.compile(rf"^[ \t]*(\[[^\n#]*\b{last}\b|[^=\n#\[]*\b{last}\b[^=\n]*=)", re.MULTILINE)
    found = written.search(text, section)
    return text.count("\n", 0, found.start(1) if found else section) + 1


def _from_variables(variables: Mapping[str, str]) -> Iterator[_Given]:
    """Every variable that stands for a setting, and those that look like one but for a letter."""
    for variable, value in variables.items():
        if not value or not variable.startswith(PREFIX) or variable.startswith(OAUTH_TOKENS):
            continue
        if variable in VARIABLES:
            yield _Given(variable, VARIABLES[variable], value)
        elif nearest(variable, VARIABLES, likeness=MISSPELLED):
            yield _Given(variable, variable, value)


def _settings(root: Path, chosen: Chosen, variables: Mapping[str, str]) -> Settings:
    """The settings with their defaults; paths are absolute, whatever folder the user stands in."""
    texts = {name: value for name, value in chosen.items() if isinstance(value, str)}
    tables = {name: value for name, value in chosen.items() if isinstance(value, dict)}
    state = root / ".ondatra"
    secrets = Secrets(variables)
    java_home = texts.get("java_home") or secrets.get("JAVA_HOME")
    return Settings(
        root=root,
        state=state,
        warehouse=_address(root, texts.get("warehouse", str(state / "warehouse"))),
        tracking=_address(root, texts.get("tracking", str(state / "tracking"))),
        jars=_path(root, texts["jars"]) if "jars" in texts else _cache(secrets) / "jars" / DELTA_VERSION,
        spark=SparkSettings(
            master=texts.get("spark.master", "local[*]"),
            remote=texts.get("spark.remote"),
            conf=tables.get("spark.conf", {}),
        ),
        sinks=texts.get("sinks", "on"),
        organization=texts.get("organization", "1"),
        workspace=texts.get("workspace", "1"),
        sources=tables.get("sources", {}),
        maven_mirror=texts.get("maven_mirror"),
        java_home=_path(root, java_home) if java_home else None,
        secrets=secrets,
    )


def _path(root: Path, written: str) -> Path:
    return root / Path(written).expanduser()


def _address(root: Path, written: str) -> str:
    return written if "://" in written else str(_path(root, written))


def _cache(secrets: Secrets) -> Path:
    """The user's cache folder: XDG's, Windows', or ~/.cache."""
    folder = secrets.get("XDG_CACHE_HOME") or secrets.get("LOCALAPPDATA")
    return Path(folder) / "ondatra" if folder else Path("~/.cache/ondatra").expanduser()
