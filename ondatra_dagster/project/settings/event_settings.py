"""What the settings say of events: how many and how large they may be, and who may send them."""

import dataclasses
import re
from collections.abc import Mapping

from ondatra_dagster.project.settings.setting_values import ANY_ORIGIN

TOKEN = "ONDATRA_EVENTS_TOKEN"  # noqa: S105 - the variable that holds it, which is a secret and no setting
PORT = 8330  # of the collector, where nobody names another
KEEP, REFUSE = "keep", "refuse"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EventSettings:
    """Limits of the collector, each for the whole of it."""

    unknown_fields: str = KEEP  # in _extra; or refuse
    max_bytes: int = 1_000_000  # of one request
    per_second: int | None = None  # events; None: as many as come
    max_waiting: int = 10_000_000  # events that no run has taken yet
    free_bytes: int = 100_000_000  # what is left to others on the disk
    flush_seconds: int = 60  # so old the oldest gets before Dagster's sensor asks for a run
    hosts: tuple[str, ...] = ()  # under which requests may come, besides this machine's own names
    origins: tuple[str, ...] = ()  # of pages whose scripts may send: https://shop.example.com, or *

    @property
    def takes_any_origin(self) -> bool:
        return ANY_ORIGIN in self.origins


def read_event_settings(texts: Mapping[str, str]) -> EventSettings:
    """What was said, as far as anything was; the rest is as it is by itself."""
    said = {name.removeprefix("events."): text for name, text in texts.items() if name.startswith("events.")}
    numbers = {name: int(text) for name, text in said.items() if re.fullmatch(r"[0-9]+", text)}
    origins, hosts = (tuple(said.get(name, "").split()) for name in ("origins", "hosts"))
    unknown = said.get("unknown_fields", KEEP)
    return EventSettings(hosts=hosts, origins=origins, unknown_fields=unknown, **numbers)
