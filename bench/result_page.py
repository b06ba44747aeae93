"""The page with the results: figures in groups. Each figure is compared with the floor of its group."""

import dataclasses
import os
import platform
import sqlite3
import statistics
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

UNITS = {"rows/s": ",.0f", "s": ".3f", "MB": ",.0f"}


@dataclasses.dataclass(frozen=True, slots=True)
class Figure:
    """The measured values of a contestant. If there are none, `missing_reason` says why."""

    name: str
    values: Sequence[float] = ()
    missing_reason: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.values)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A group of comparable figures. The first figure is the floor, and one figure may be a peer's."""

    title: str
    unit_id: str
    figures: Sequence[Figure]
    peer_name: str | None = None  # the name of the peer's figure

    def lines(self) -> Iterator[str]:
        yield f"| **{self.title}** | **{self.unit_id}** | **× floor** |{' **× dlt** ' if self.peer_name else ' '}|"  # noqa: RUF001
        peers = [figure for figure in self.figures if figure.name == self.peer_name]
        for figure in self.figures:
            ratios = [_ratio(figure, self.figures[0]), *(_ratio(figure, peer) for peer in peers)]
            yield f"| {figure.name} | {self._format_figure(figure)} | {' | '.join(ratios)} |{'' if peers else ' |'}"

    def _format_figure(self, figure: Figure) -> str:
        return f"{figure.median:{UNITS[self.unit_id]}}" if figure.values else figure.missing_reason


def _ratio(figure: Figure, other: Figure) -> str:
    """Return the ratio of two figures with two significant digits; "" if one of the figures is missing."""
    if not figure.values or not other.values:
        return ""
    ratio = figure.median / other.median
    return f"{ratio:.0f}" if ratio >= 9.95 else f"{ratio:#.2g}"


def build_page(groups: Sequence[Group], *, repetitions: int) -> str:
    """Return the whole page in Markdown."""
    lines = [line for group in groups for line in group.lines()]
    return f"""<!-- Written by `make bench`; edits are lost. -->
# Bench

{_machine()}; {datetime.now(UTC):%Y-%m-%d}.
Medians of {repetitions}, taken in turns, each in a process of its own.
Rows have five columns and go to a loopback server in another process.
Times depend on the machine and on what else it does: only the ratios within one group mean something.
The first line of a group is its floor: what would have to be done anyway, with nothing tracked.
Of a row that was sent the peers keep nothing.
drt opens a client for each of its batches: where these are large it is a loop over one client.

| | | | |
|---|---:|---:|---:|
{chr(10).join(lines)}
"""


def _machine() -> str:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return (
        f"{cores} cores, {platform.system()} {platform.machine()},"
        f" Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}"
    )
