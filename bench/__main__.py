"""The command `python -m bench`.

It measures every speed figure of the README and of the peers, and writes one table.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from bench.command_times import CannotRunError, RunProject, python_seconds
from bench.event_servers import CONNECTIONS
from bench.http_server import running_server
from bench.peer_environments import DLT, DRT, MissingPeerError, install_peer
from bench.record_queries import RECORDS_PER_RUN, RUN_COUNT, RecordSearchProject
from bench.result_page import Figure, Group, build_page

ROOT = Path(__file__).parents[1]
REPETITIONS = 3
# by batch size; so many rows that a peer's one-time work hardly counts (dlt: a second before its first row)
ROWS = {100: 150_000, 1000: 150_000, 1: 3_000}
STORED_ROWS = 200_000
MEMORY_ROWS = (100_000, 1_000_000)
MODELS = (10, 500)
LARGE_BATCH = 10_000  # the rows in a large batch of drt; one client sends them in many calls
EVENTS = {1: 30_000, 100: 1_000_000}
DLT_DESTINATION = "dlt 1.31, custom destination"
DLT_LOAD = "dlt 1.31, its load step alone"
DRT_PLAIN = "drt 1.2, a batch a call"
DRT_LARGE = f"drt 1.2, batches of {LARGE_BATCH:,}"

Numbers = Mapping[str, float]
Measures = Mapping[str, Callable[[], Numbers]]


def main() -> None:
    with running_server() as url:
        groups = [
            *(*_delivery_groups(url), _enqueue_group(), _publish_group(), *_event_groups(), *_project_load_groups()),
            *(_record_search_group(), _page_view_group(), _memory_group(url), _command_group(url)),
        ]
    text = build_page(groups, repetitions=REPETITIONS)
    (ROOT / "docs" / "bench.md").write_text(text, encoding="utf-8")
    print(text)


def _measurement(python: Path, module: str, *arguments: object) -> Numbers:
    """Return the numbers that the process of a contestant prints."""
    command = [str(python), "-m", module, *map(str, arguments)]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{process.stderr[-3000:]}")
    numbers: Numbers = json.loads(process.stdout.splitlines()[-1])
    return numbers


def _ondatra_name(name: str, *arguments: object) -> Callable[[], Numbers]:
    return partial(_measurement, Path(sys.executable), "bench.measurements", name, *arguments)


def _measure_in_turns(contest: Measures) -> dict[str, list[Numbers]]:
    """Return the numbers of each contestant, measured in turns, so that a busy machine slows all contestants."""
    numbers_by_name: dict[str, list[Numbers]] = {name: [] for name in contest}
    for _ in range(REPETITIONS):
        for name, measure in contest.items():
            print(f"  {name}", file=sys.stderr)
            numbers_by_name[name].append(measure())
    return numbers_by_name


def _figures(contest: Measures, number: str) -> list[Figure]:
    return [_rate(name, numbers, number) for name, numbers in _measure_in_turns(contest).items()]


def _delivery_groups(url: str) -> list[Group]:
    return [_delivery_group(url, size, rows) for size, rows in ROWS.items()]


def _delivery_group(url: str, size: int, rows: int) -> Group:
    title = f"{rows:,} rows, {size} a call" if size > 1 else f"{rows:,} rows, one call a row"
    print(title, file=sys.stderr)
    peers, missing_peers = _delivery_peers(url, size, rows)
    numbers_by_name = _measure_in_turns(
        {
            "http.client loop: nothing tracked": _ondatra_name("handwritten_loop", "http.client", url, rows, size),
            "httpx loop, one client": _ondatra_name("handwritten_loop", "httpx", url, rows, size),
            "requests loop, one session": _ondatra_name("handwritten_loop", "requests", url, rows, size),
            **peers,
            "ondatra, feed → queue → API → record files": _ondatra_name("full_sync", url, rows, size),
            "**ondatra, queued → settled and recorded**": _ondatra_name("deliver_queued", url, rows, size),
        }
    )
    figures = [_rate(name, numbers, "rate") for name, numbers in numbers_by_name.items()]
    if DLT_DESTINATION in numbers_by_name:
        load = _rate(DLT_LOAD, numbers_by_name[DLT_DESTINATION], "load_rate")
        figures.insert(list(numbers_by_name).index(DLT_DESTINATION) + 1, load)
    return Group(
        title=title, unit_id="rows/s", figures=[*figures[:3], *missing_peers, *figures[3:]], peer_name=DLT_DESTINATION
    )


def _delivery_peers(url: str, size: int, rows: int) -> tuple[Measures, list[Figure]]:
    """Return the peers that can be installed here, and a figure without values for each other peer."""
    peers: dict[str, Callable[[], Numbers]] = {}
    missing_peers = []
    plain_peer = {DRT_PLAIN: (DRT, "bench.drt_sync", size)} if size > 1 else {}
    requirements = {
        DLT_DESTINATION: (DLT, "bench.dlt_pipeline"),
        **plain_peer,
        DRT_LARGE: (DRT, "bench.drt_sync", LARGE_BATCH),
    }
    for name, (requirement, module, *extra_arguments) in requirements.items():
        try:
            peers[name] = partial(_measurement, install_peer(requirement), module, url, rows, size, *extra_arguments)
        except MissingPeerError as error:
            missing_peers.append(Figure(name, missing_reason=str(error)))
    return peers, missing_peers


def _rate(label: str, numbers: Sequence[Numbers], name: str) -> Figure:
    return Figure(label, [measurement[name] for measurement in numbers])


def _enqueue_group() -> Group:
    contest = {
        "bare inserts, as durable": _ondatra_name("sqlite_inserts", STORED_ROWS),
        "**ondatra, feed → queue**": _ondatra_name("enqueue_feed", STORED_ROWS),
    }
    title = f"{STORED_ROWS:,} changes into the queue"
    print(title, file=sys.stderr)
    return Group(title=title, unit_id="rows/s", figures=_figures(contest, "rate"))


def _publish_group() -> Group:
    contest = {
        "pyarrow alone, from lists": _ondatra_name("pyarrow_files", STORED_ROWS),
        "**ondatra, settled → record files**": _ondatra_name("publish_records", STORED_ROWS),
    }
    title = f"{STORED_ROWS:,} records into Parquet"
    print(title, file=sys.stderr)
    return Group(title=title, unit_id="rows/s", figures=_figures(contest, "rate"))


def _event_groups() -> list[Group]:
    return [_event_group(size, events) for size, events in EVENTS.items()]


def _event_group(size: int, events: int) -> Group:
    contest = {
        "Starlette parses them, and no more": _ondatra_name("receive_events", "plain", events, size),
        "**ondatra events, judged and durable**": _ondatra_name("receive_events", "ours", events, size),
    }
    request_size = f"{size} a request" if size > 1 else "one a request"
    title = f"{events:,} events by HTTP, {request_size}, {CONNECTIONS} connections"
    print(title, file=sys.stderr)
    return Group(title=title, unit_id="rows/s", figures=_figures(contest, "rate"))


def _project_load_groups() -> list[Group]:
    return [_project_load_group(models) for models in MODELS]


def _project_load_group(models: int) -> Group:
    contest = {
        "sqlglot parses the queries": _ondatra_name("parse_queries", models),
        "**ondatra reads the project**": _ondatra_name("read_project", models),
        "its Dagster definitions, Dagster's own start included": _ondatra_name("read_definitions", models),
        "ondatra run, nothing to do": _ondatra_name("idle_run", models),
    }
    title = f"A project of {models} models"
    print(title, file=sys.stderr)
    return Group(title=title, unit_id="s", figures=_figures(contest, "seconds"))


def _record_search_group() -> Group:
    title = f"One identifier in {RUN_COUNT} runs of {RECORDS_PER_RUN:,} records, the whole process"
    print(title, file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        project = RecordSearchProject.create(Path(folder) / "project")
        numbers_by_name = _measure_in_turns(
            {
                "DuckDB's query over all files": lambda: {"seconds": project.query_seconds()},
                "**ondatra records --search**": lambda: {"seconds": project.command_seconds()},
            }
        )
    return Group(
        title=title, unit_id="s", figures=[_rate(name, numbers_by_name[name], "seconds") for name in numbers_by_name]
    )


def _page_view_group() -> Group:
    contest = {
        "DuckDB's query for the newest 50, asked before": _ondatra_name("view_query"),
        "**the records page's first view, after a search**": _ondatra_name("page_view"),
    }
    title = f"The newest records of {RUN_COUNT} runs of {RECORDS_PER_RUN:,}, in a process that is up"
    print(title, file=sys.stderr)
    return Group(title=title, unit_id="s", figures=_figures(contest, "seconds"))


def _memory_group(url: str) -> Group:
    print("Memory", file=sys.stderr)
    figures = [
        Figure(f"first sync of {rows:,} rows", [_ondatra_name("full_sync", url, rows, 1000)()["megabytes"]])
        for rows in MEMORY_ROWS
    ]
    return Group(title="Most memory, measured once", unit_id="MB", figures=figures)


def _command_group(url: str) -> Group:
    print("Commands", file=sys.stderr)
    figures = [Figure("python -c pass", _repeat_measurement(partial(python_seconds, "pass")))]
    with tempfile.TemporaryDirectory() as folder:
        try:
            project = RunProject.create(Path(folder) / "project", url)
            figures += [
                Figure("ondatra --help", _repeat_measurement(partial(project.command_seconds, "--help"))),
                Figure("ondatra status", _repeat_measurement(partial(project.command_seconds, "status"))),
                Figure("ondatra validate", _repeat_measurement(partial(project.command_seconds, "validate"))),
                Figure("**ondatra run, nothing to do**", _repeat_measurement(partial(project.command_seconds, "run"))),
            ]
        except CannotRunError as error:
            figures.append(Figure("ondatra", missing_reason=str(error)))
    return Group(title="Commands", unit_id="s", figures=figures)


def _repeat_measurement(measure: Callable[[], float]) -> Sequence[float]:
    return [measure() for _ in range(REPETITIONS)]


if __name__ == "__main__":
    main()
