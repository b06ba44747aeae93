"""The settings' names and variables, and the parsers of their values.

If a value can't be used, its parser raises SettingValueError with the remedy.
"""

import contextlib
import ipaddress
import json
import re
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import TypeAlias
from urllib.parse import urlsplit

from ondatra_dagster.project.header_value_parsers import HeaderValueError, read_cron
from ondatra_dagster.project.spelling_suggestions import suggest_correction

SINK_MODES = ("on", "dry", "off")
OFF_VALUE = "off"
SWITCH_VALUES = ("on", OFF_VALUE)
UNKNOWN_FIELD_MODES = ("keep", "refuse")
FOREVER_VALUE = "forever"
ANY_ORIGIN = "*"


class SettingValueError(ValueError):
    """The error for a setting's value that can't be used. Its text says what is wrong and what to write."""


def read_text(value: object) -> str:
    """Return the value as a text; refuse an empty one."""
    if not isinstance(value, str) or not value.strip():
        raise SettingValueError(f"{value!r} is not a string; write it in quotes")
    return value


def read_sink_mode(value: object) -> str:
    """Return the mode of the sinks: on, dry or off."""
    return _read_choice(value, "sinks", SINK_MODES)


def read_switch(value: object) -> str:
    """Return "on" or "off". The file may have true or false instead."""
    text = {True: "on", False: OFF_VALUE}.get(value, value) if isinstance(value, bool) else value
    if text not in SWITCH_VALUES:
        raise SettingValueError(f"{value!r} is neither on nor off; write 'on' or 'off'")
    return str(text)


def read_repository(value: object) -> str:
    """Return the address of a Maven repository. Messages don't show it, because it may contain a password."""
    text = read_text(value).strip()
    with contextlib.suppress(ValueError):  # the address can't be parsed
        parts = urlsplit(text)
        if (parts.scheme in ("https", "http") and parts.hostname) or parts.scheme == "file":
            return text
    raise SettingValueError("maven_mirror isn't a repository's address; write it as https://host/path")


def read_unknown_fields(value: object) -> str:
    """Return what happens to unknown fields of an event: "keep" or "refuse"."""
    return _read_choice(value, "events.unknown_fields", UNKNOWN_FIELD_MODES)


def read_count(value: object) -> str:
    """Return the text of a whole number of 1 or more."""
    text = _number_text(value)
    if not re.fullmatch(r"[0-9]{1,18}", text) or not int(text):
        raise SettingValueError(f"{value!r} is not a number of 1 or more; write one, without a unit")
    return text


def read_origins(value: object) -> str:
    """Return the origins of web pages as browsers spell them. The value is a list, or a text with spaces or commas."""
    origin = re.compile(r"\*|https?://[^/\s,]+")
    return _read_list(value, origin, "isn't a page's origin; write https://shop.example.com, without a path, or *")


def read_hosts(value: object) -> str:
    """Return the names or addresses of hosts. The value is a list, or a text with spaces or commas."""
    host = re.compile(r"[\w.-]+|\[[0-9A-Fa-f:.]+\]", re.ASCII)
    remedy = "write events.example.com or [fd00::1], without http:// and without a port"
    return _read_list(value, host, f"isn't a host's name; {remedy}")


def read_folder_name(value: object) -> str:
    """Return a name or number that is valid as the name of a folder in the tracking store."""
    text = _number_text(value)
    if not re.fullmatch(r"(?!\.+$)[A-Za-z0-9._-]{1,100}", text):
        raise SettingValueError(f"{value!r} can't be a folder's name; use up to 100 of A-Z a-z 0-9 . _ -")
    return text


def read_days(value: object) -> str:
    """Return a number of days, or "forever"."""
    text = _number_text(value)
    if not (text == FOREVER_VALUE or (text.isdecimal() and int(text) > 0)):
        raise SettingValueError(f"{value!r} is not a number of days; write 1 or more, or {FOREVER_VALUE!r}")
    return text


def read_cron_time(value: object) -> str:
    """Return a cron text in the syntax of `@schedule`, or "off"."""
    if value is False or value == OFF_VALUE:
        return OFF_VALUE
    try:
        return read_cron(read_text(value))
    except HeaderValueError as error:
        raise SettingValueError(f"{error.description}; {error.remedy}") from error


def read_port(value: object) -> str:
    """Return the number of a port as a text."""
    text = _number_text(value)
    if not (text.isdecimal() and 0 < int(text) < 65_536):
        raise SettingValueError(f"{value!r} is not a port; write a number from 1 to 65535")
    return text


def read_web_address(value: object) -> str:
    """Return the address of a web page, without a slash at its end."""
    text = read_text(value).rstrip("/")
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise SettingValueError(f"{value!r} is not a page's address; write it as http://host:port")
    return text


def read_webhook(value: object) -> str:
    """Return the address of a webhook. Every ${NAME} in it means the value of a variable."""
    text = read_text(value)
    if not re.match(r"https?://|\$\{\w+\}", text):
        raise SettingValueError("the webhook isn't an address; write https://… or ${NAME}, a variable that holds it")
    return text


def read_variable_name(value: object) -> str:
    """Return the name of an environment variable."""
    text = read_text(value)
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", text):
        raise SettingValueError("that isn't a variable's name; write the name of the one that holds the token")
    return text


def read_share(value: object) -> str:
    """Return a percentage, or "off"."""
    if value is False or value == OFF_VALUE:
        return OFF_VALUE
    if not isinstance(value, str) or not re.fullmatch(r"\d+(\.\d+)?%", value):
        raise SettingValueError(f"{value!r} is not a percentage; write '10%', or {OFF_VALUE!r}")
    return value


def read_hours(value: object) -> str:
    """Return a number of hours, or "off"."""
    text = str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value
    if value is False or text == OFF_VALUE:
        return OFF_VALUE
    if not isinstance(text, str) or not re.fullmatch(r"\d+(\.\d+)?", text) or not float(text):
        raise SettingValueError(f"{value!r} is not a number of hours; write 24, or {OFF_VALUE!r}")
    return text


def _number_text(value: object) -> str:
    """Return the text of a whole number, which the user may have quoted; "" for anything else."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value if isinstance(value, str) else ""


def _read_choice(value: object, setting_name: str, choices: Sequence[str]) -> str:
    if value not in choices:
        suggestion = suggest_correction(str(value), choices, plural="choices")
        raise SettingValueError(f"{setting_name} can't be {value!r}; {suggestion}")
    return str(value)


def _read_list(value: object, pattern: re.Pattern[str], problem: str) -> str:
    """Return the texts of a list, or the words of a text with spaces or commas, joined by spaces."""
    items = value if isinstance(value, list) else re.split(r"[\s,]+", read_text(value).strip())
    for item in items:
        if not isinstance(item, str) or not pattern.fullmatch(item):
            raise SettingValueError(f"{item!r} {problem}")
    return " ".join(items)


def read_conf(value: object) -> dict[str, str]:
    """Return the user's settings of Spark, with every value as a text. The user may quote the dotted names or not."""
    return {name: _conf_text(name, conf_value) for name, conf_value in flatten_table(_read_table(value))}


def read_sources(value: object) -> dict[str, str]:
    """Return the location of each source's tables: a text catalog.schema, or a folder."""
    sources = {name: read_text(location) for name, location in _read_table(value).items()}
    for name in sources:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise SettingValueError(f"a source can't be called {name!r}; use letters, digits and _")
    if len({name.casefold() for name in sources}) < len(sources):
        raise SettingValueError("two sources differ only in case; rename one of them")
    return sources


def _read_table(value: object) -> Mapping[str, object]:
    if isinstance(value, str):  # a variable holds the whole table as JSON
        try:
            value = json.loads(value)
        except json.JSONDecodeError as error:
            raise SettingValueError(f'the value is not JSON ({error}); write it as {{"name": "value"}}') from error
    if not isinstance(value, Mapping):
        raise SettingValueError(f"{value!r} is not a table; write it as names with values")
    return value


def flatten_table(
    table: Mapping[str, object], *, table_names: Container[str] = (), prefix: str = ""
) -> Iterator[tuple[str, object]]:
    """Yield each value with its dotted name: spark = {master = …} is spark.master = ….

    A table whose name is in `table_names` is yielded as one value.
    """
    for name, value in table.items():
        if isinstance(value, Mapping) and prefix + name not in table_names:
            yield from flatten_table(value, table_names=table_names, prefix=f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _conf_text(name: str, value: object) -> str:
    if not isinstance(value, bool | str | int | float):
        raise SettingValueError(f"{name} can't be {value!r}; write a string, a number, true or false")
    return str(value).lower() if isinstance(value, bool) else str(value)


SettingParser: TypeAlias = Callable[[object], str | dict[str, str]]
SETTING_PARSERS: Mapping[str, SettingParser] = {
    "warehouse": read_text,
    "spark.master": read_text,
    "spark.remote": read_text,
    "spark.conf": read_conf,
    "engine": read_switch,
    "engine_idle_minutes": read_count,
    "sinks": read_sink_mode,
    "tracking": read_text,
    "publish_seconds": read_count,
    "tracking_retention_days": read_days,
    "table_retention_days": read_days,
    "maintain_at": read_cron_time,
    "organization": read_folder_name,
    "workspace": read_folder_name,
    "sources": read_sources,
    "ui_port": read_port,
    "dagster_url": read_web_address,
    "alerts.webhook": read_webhook,
    "alerts.token_env": read_variable_name,
    "alerts.rejects": read_share,
    "alerts.deviation": read_share,
    "alerts.no_success_hours": read_hours,
    "jars": read_text,
    "maven_http": read_switch,
    "maven_mirror": read_repository,
    "java_home": read_text,
    "events.unknown_fields": read_unknown_fields,
    "events.max_bytes": read_count,
    "events.per_second": read_count,
    "events.max_waiting": read_count,
    "events.free_bytes": read_count,
    "events.flush_seconds": read_count,
    "events.hosts": read_hosts,
    "events.origins": read_origins,
}
VARIABLE_PREFIX = "ONDATRA_"
# settings whose values are tables, in which the user chooses the names
TABLE_SETTINGS = frozenset({"spark.conf", "sources"})
SETTINGS_BY_VARIABLE = {VARIABLE_PREFIX + name.upper().replace(".", "_"): name for name in SETTING_PARSERS}
HTTP_PERMISSION = "on"


def needs_http_permission(settings: Mapping[str, object]) -> bool:
    """Return whether the settings name an unencrypted repository on another machine but don't allow one."""
    parts = urlsplit(str(settings.get("maven_mirror", "")))
    is_unencrypted = parts.scheme == "http" and not _is_this_machine(parts.hostname or "")
    return is_unencrypted and settings.get("maven_http") != HTTP_PERMISSION


def _is_this_machine(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
