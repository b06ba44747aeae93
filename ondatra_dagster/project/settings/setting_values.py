"""How the value of each setting is written: a reader a shape, which refuses the rest with a sentence."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias
from urllib.parse import urlsplit

from ondatra_dagster.project.cron import read_cron
from ondatra_dagster.project.header_values import BadHeaderError
from ondatra_dagster.project.settings.alert_settings import OFF
from ondatra_dagster.project.settings.maven_repository import is_repository
from ondatra_dagster.project.suggestions import correction

SINKS = ("on", "dry", "off")
SWITCH = ("on", "off")
UNKNOWN_FIELDS = ("keep", "refuse")
FOREVER = "forever"
ANY_ORIGIN = "*"


class BadValueError(ValueError):
    """A value that can't be used; its text says what it is and what to write."""


def read_text(value: object) -> str:
    """A text that isn't empty."""
    if not isinstance(value, str) or not value.strip():
        raise BadValueError(f"{value!r} is not a text; write it in quotes")
    return value


def read_sinks(value: object) -> str:
    """on, dry or off."""
    if value not in SINKS:
        raise BadValueError(f"sinks can't be {value!r}; {correction(str(value), SINKS, plural='choices')}")
    return str(value)


def read_switch(value: object) -> str:
    """on or off; true or false in the file."""
    text = {True: "on", False: OFF}.get(value, value) if isinstance(value, bool) else value
    if text not in SWITCH:
        raise BadValueError(f"{value!r} is neither on nor off; write 'on' or 'off'")
    return str(text)


def read_repository(value: object) -> str:
    """A Maven repository's address. It may hold a password, so that no message shows it."""
    text = read_text(value).strip()
    try:
        if is_repository(text):
            return text
    except ValueError:  # of an address that can't be taken apart
        pass
    raise BadValueError("maven_mirror is no repository's address; write it as https://host/path")


def read_unknown_fields(value: object) -> str:
    """keep or refuse."""
    if value not in UNKNOWN_FIELDS:
        known = correction(str(value), UNKNOWN_FIELDS, plural="choices")
        raise BadValueError(f"events.unknown_fields can't be {value!r}; {known}")
    return str(value)


def read_count(value: object) -> str:
    """A whole number, 1 or more."""
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(text, str) or not re.fullmatch(r"[0-9]{1,18}", text) or not int(text):
        raise BadValueError(f"{value!r} is not a number of 1 or more; write one, without a unit")
    return text


def read_origins(value: object) -> str:
    """Addresses of pages as browsers spell them, in a list, or in one text with spaces or commas between."""
    origins = value if isinstance(value, list) else re.split(r"[\s,]+", read_text(value).strip())
    for origin in origins:
        is_known = isinstance(origin, str) and re.fullmatch(r"\*|https?://[^/\s,]+", origin)
        if not is_known:
            how = "write https://shop.example.com, without a path, or *"
            raise BadValueError(f"{origin!r} is no origin of a page; {how}")
    return " ".join(origins)


def read_hosts(value: object) -> str:
    """Names or addresses of hosts, in a list, or in one text with spaces or commas between."""
    hosts = value if isinstance(value, list) else re.split(r"[\s,]+", read_text(value).strip())
    for host in hosts:
        if not isinstance(host, str) or not re.fullmatch(r"[\w.-]+|\[[0-9A-Fa-f:.]+\]", host, re.ASCII):
            how = "write events.example.com or [fd00::1], without http:// and without a port"
            raise BadValueError(f"{host!r} is no name of a host; {how}")
    return " ".join(hosts)


def read_folder_name(value: object) -> str:
    """A name that becomes a folder of the tracking store; a number is one too."""
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(text, str) or not re.fullmatch(r"(?!\.+$)[A-Za-z0-9._-]{1,100}", text):
        raise BadValueError(f"{value!r} can't be a folder's name; use up to 100 of A-Z a-z 0-9 . _ -")
    return text


def read_days(value: object) -> str:
    """A number of days, or forever."""
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(text, str) or not (text == FOREVER or (text.isdecimal() and int(text) > 0)):
        raise BadValueError(f"{value!r} is not a number of days; write 1 or more, or {FOREVER!r}")
    return text


def read_times(value: object) -> str:
    """A time that comes again, as `@schedule` spells it, or off."""
    if value is False or value == OFF:
        return OFF
    try:
        return read_cron(read_text(value))
    except BadHeaderError as bad:
        raise BadValueError(f"{bad.what}; {bad.remedy}") from bad


def read_port(value: object) -> str:
    """The number of a port."""
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(text, str) or not (text.isdecimal() and 0 < int(text) < 65_536):
        raise BadValueError(f"{value!r} is not a port; write a number from 1 to 65535")
    return text


def read_web_address(value: object) -> str:
    """Where a page is, without a slash at its end."""
    text = read_text(value).rstrip("/")
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise BadValueError(f"{value!r} is not a page's address; write it as http://host:port")
    return text


def read_webhook(value: object) -> str:
    """An address, in which ${NAME} stands for a variable."""
    text = read_text(value)
    if not re.match(r"https?://|\$\{\w+\}", text):
        raise BadValueError("the webhook is no address; write https://… or ${NAME}, a variable that holds it")
    return text


def read_variable(value: object) -> str:
    """The name of a variable."""
    text = read_text(value)
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", text):
        raise BadValueError("that is no variable's name; write the name of the one that holds the token")
    return text


def read_share(value: object) -> str:
    """A percentage, or off."""
    if value is False or value == OFF:
        return OFF
    if not isinstance(value, str) or not re.fullmatch(r"\d+(\.\d+)?%", value):
        raise BadValueError(f"{value!r} is not a percentage; write '10%', or {OFF!r}")
    return value


def read_hours(value: object) -> str:
    """A number of hours, or off."""
    text = str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value
    if value is False or text == OFF:
        return OFF
    if not isinstance(text, str) or not re.fullmatch(r"\d+(\.\d+)?", text) or not float(text):
        raise BadValueError(f"{value!r} is not a number of hours; write 24, or {OFF!r}")
    return text


def read_conf(value: object) -> dict[str, str]:
    """Spark's own settings, all text as Spark wants them; dotted names may stand in quotes or not."""
    return dict(_flat(_table(value)))


def read_sources(value: object) -> dict[str, str]:
    """Where the tables of each source are: catalog.schema, or a folder."""
    sources = {name: read_text(location) for name, location in _table(value).items()}
    for name in sources:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise BadValueError(f"a source can't be called {name!r}; use letters, digits and _")
    if len({name.casefold() for name in sources}) < len(sources):
        raise BadValueError("two sources differ only in case; rename one of them")
    return sources


def _table(value: object) -> Mapping[str, object]:
    if isinstance(value, str):  # a variable holds a table as JSON
        try:
            value = json.loads(value)
        except json.JSONDecodeError as error:
            raise BadValueError(
                f'the value is not JSON ({error}); write it as {{"name": "value"}}'
            ) from error
    if not isinstance(value, Mapping):
        raise BadValueError(f"{value!r} is not a table; write it as names with values")
    return value


def _flat(table: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        elif isinstance(value, bool):
            yield prefix + name, str(value).lower()
        elif isinstance(value, str | int | float):
            yield prefix + name, str(value)
        else:
            raise BadValueError(f"{prefix}{name} can't be {value!r}; write a text, a number, true or false")


Reader: TypeAlias = Callable[[object], str | dict[str, str]]

READERS: Mapping[str, Reader] = {
    "warehouse": read_text,
    "spark.master": read_text,
    "spark.remote": read_text,
    "spark.conf": read_conf,
    "sinks": read_sinks,
    "tracking": read_text,
    "publish_seconds": read_count,
    "tracking_retention_days": read_days,
    "table_retention_days": read_days,
    "maintain_at": read_times,
    "organization": read_folder_name,
    "workspace": read_folder_name,
    "sources": read_sources,
    "ui_port": read_port,
    "dagster_url": read_web_address,
    "alerts.webhook": read_webhook,
    "alerts.token_env": read_variable,
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
PREFIX = "ONDATRA_"
TABLES = frozenset({"spark.conf", "sources"})  # settings that are tables of names which the user chooses
VARIABLES = {PREFIX + name.upper().replace(".", "_"): name for name in READERS}
