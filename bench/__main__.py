"""`python -m bench`: every speed figure of the README, and the peers beside, in one run and one table."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from bench.commands import CannotRunError, RunProject, bare_seconds
from bench.intake import CONNECTIONS
from bench.peer_python import DLT, DRT, MissingPeerError, peer_python
from bench.records import RECORDS, RUNS, Searched
from bench.server import serving
from bench.table import Figure, Group, page

ROOT = Path(__file__).parents[1]
REPETITIONS = 3
# enough that what a peer does once (dlt: a second before its first row) hardly counts
ROWS = {100: 150_000, 1000: 150_000, 1: 3_000}
STORED_ROWS = 200_000
MEMORY_ROWS = (100_000, 1_000_000)
MODELS = (10, 500)
LARGE_BATCH = 10_000  # what drt takes at once, where it makes many calls of it with one client
EVENTS = {1: 30_000, 100: 1_000_000}
DLT_WHOLE = "dlt 1.31, custom destination"
DLT_LOAD = "dlt 1.31, its load step alone"
DRT_PLAIN = "drt 1.2, a batch a call"
DRT_LARGE = f"drt 1.2, batches of {LARGE_BATCH:,}"

Numbers = Mapping[str, float]
Contest = Mapping[str, Callable[[], Numbers]]


def main() -> None:
    with serving() as url:
        groups = [
            *(*_delivery(url), _enqueue(), _publish(), *_intake(), *_reading()),
            *(_searching(), _viewing(), _memory(url), _commands(url)),
        ]
    text = page(groups, repetitions=REPETITIONS)
    (ROOT / "docs" / "bench.md").write_text(text, encoding="utf-8")
    print(text)


def _child(python: Path, module: str, *arguments: object) -> Numbers:
    """What a contestant says of itself."""
    command = [str(python), "-m", module, *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-3000:]}")
    numbers: Numbers = json.loads(done.stdout.splitlines()[-1])
    return numbers


def _ours(name: str, *arguments: object) -> Callable[[], Numbers]:
    return partial(_child, Path(sys.executable), "bench.contestants", name, *arguments)


def _in_turns(contest: Contest) -> dict[str, list[Numbers]]:
    """Each contestant's numbers. In turns: a machine that gets busy is busy for all."""
    found: dict[str, list[Numbers]] = {what: [] for what in contest}
    for _ in range(REPETITIONS):
        for what, measure in contest.items():
            print(f"  {what}", file=sys.stderr)
            found[what].append(measure())
    return found


def _figures(contest: Contest, number: str) -> list[Figure]:
    return [_rate(what, numbers, number) for what, numbers in _in_turns(contest).items()]


def _delivery(url: str) -> list[Group]:
    return [_delivery_group(url, size, rows) for size, rows in ROWS.items()]


def _delivery_group(url: str, size: int, rows: int) -> Group:
    title = f"{rows:,} rows, {size} a call" if size > 1 else f"{rows:,} rows, one call a row"
    print(title, file=sys.stderr)
    peers, missing = _peers(url, size, rows)
    found = _in_turns(
        {
            "http.client loop: nothing tracked": _ours("loop", "http.client", url, rows, size),
            "httpx loop, one client": _ours("loop", "httpx", url, rows, size),
            "requests loop, one session": _ours("loop", "requests", url, rows, size),
            **peers,
            "ondatra, feed → queue → API → record files": _ours("whole", url, rows, size),
            "**ondatra, queued → settled and recorded**": _ours("deliver", url, rows, size),
        }
    )
    figures = [_rate(what, numbers, "rate") for what, numbers in found.items()]
    if DLT_WHOLE in found:
        load = _rate(DLT_LOAD, found[DLT_WHOLE], "load_rate")
        figures.insert(list(found).index(DLT_WHOLE) + 1, load)
    return Group(title=title, unit="rows/s", figures=[*figures[:3], *missing, *figures[3:]], peer=DLT_WHOLE)


def _peers(url: str, size: int, rows: int) -> tuple[Contest, list[Figure]]:
    """Those that can be had here, and a line for each that can't."""
    peers: dict[str, Callable[[], Numbers]] = {}
    missing = []
    plain = {DRT_PLAIN: (DRT, "bench.drt_peer", size)} if size > 1 else {}
    wanted = {DLT_WHOLE: (DLT, "bench.dlt_peer"), **plain, DRT_LARGE: (DRT, "bench.drt_peer", LARGE_BATCH)}
    for what, (requirement, module, *more) in wanted.items():
        try:
            peers[what] = partial(_child, peer_python(requirement), module, url, rows, size, *more)
        except MissingPeerError as error:
            missing.append(Figure(what, why_not=str(error)))
    return peers, missing


def _rate(what: str, numbers: Sequence[Numbers], name: str) -> Figure:
    return Figure(what, [each[name] for each in numbers])


def _enqueue() -> Group:
    contest = {
        "bare inserts, as durable": _ours("bare_inserts", STORED_ROWS),
        "**ondatra, feed → queue**": _ours("enqueued", STORED_ROWS),
    }
    title = f"{STORED_ROWS:,} changes into the queue"
    print(title, file=sys.stderr)
    return Group(title=title, unit="rows/s", figures=_figures(contest, "rate"))


def _publish() -> Group:
    contest = {
        "pyarrow alone, from lists": _ours("bare_parquet", STORED_ROWS),
        "**ondatra, settled → record files**": _ours("published", STORED_ROWS),
    }
    title = f"{STORED_ROWS:,} records into Parquet"
    print(title, file=sys.stderr)
    return Group(title=title, unit="rows/s", figures=_figures(contest, "rate"))


def _intake() -> list[Group]:
    return [_intake_group(size, events) for size, events in EVENTS.items()]


def _intake_group(size: int, events: int) -> Group:
    contest = {
        "Starlette parses them, and no more": _ours("intake", "plain", events, size),
        "**ondatra events, judged and durable**": _ours("intake", "ours", events, size),
    }
    each = f"{size} a request" if size > 1 else "one a request"
    title = f"{events:,} events by HTTP, {each}, {CONNECTIONS} connections"
    print(title, file=sys.stderr)
    return Group(title=title, unit="rows/s", figures=_figures(contest, "rate"))


def _reading() -> list[Group]:
    return [_reading_group(models) for models in MODELS]


def _reading_group(models: int) -> Group:
    contest = {
        "sqlglot parses the queries": _ours("parse", models),
        "**ondatra reads the project**": _ours("read", models),
        "its Dagster definitions, Dagster's own start included": _ours("definitions", models),
        "ondatra run, nothing to do": _ours("idle_run", models),
    }
    title = f"A project of {models} models"
    print(title, file=sys.stderr)
    return Group(title=title, unit="s", figures=_figures(contest, "seconds"))


def _searching() -> Group:
    title = f"One identifier in {RUNS} runs of {RECORDS:,} records, the whole process"
    print(title, file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        searched = Searched.make(Path(folder) / "project")
        found = _in_turns(
            {
                "DuckDB's query over all files": lambda: {"seconds": searched.query_seconds()},
                "**ondatra records --search**": lambda: {"seconds": searched.seconds()},
            }
        )
    return Group(title=title, unit="s", figures=[_rate(what, found[what], "seconds") for what in found])


def _viewing() -> Group:
    contest = {
        "DuckDB's query for the newest 50, asked before": _ours("view_query"),
        "**the records page's first view, after a search**": _ours("page_view"),
    }
    title = f"The newest records of {RUNS} runs of {RECORDS:,}, in a process that is up"
    print(title, file=sys.stderr)
    return Group(title=title, unit="s", figures=_figures(contest, "seconds"))


def _memory(url: str) -> Group:
    print("Memory", file=sys.stderr)
    figures = [
        Figure(f"first sync of {rows:,} rows", [_ours("whole", url, rows, 1000)()["megabytes"]])
        for rows in MEMORY_ROWS
    ]
    return Group(title="Most memory, measured once", unit="MB", figures=figures)


def _commands(url: str) -> Group:
    print("Commands", file=sys.stderr)
    figures = [Figure("python -c pass", _repeated(partial(bare_seconds, "pass")))]
    with tempfile.TemporaryDirectory() as folder:
        try:
            project = RunProject.make(Path(folder) / "project", url)
            figures += [
                Figure("ondatra --help", _repeated(partial(project.seconds, "--help"))),
                Figure("ondatra status", _repeated(partial(project.seconds, "status"))),
                Figure("ondatra validate", _repeated(partial(project.seconds, "validate"))),
                Figure("**ondatra run, nothing to do**", _repeated(partial(project.seconds, "run"))),
            ]
        except CannotRunError as error:
            figures.append(Figure("ondatra", why_not=str(error)))
    return Group(title="Commands", unit="s", figures=figures)


def _repeated(measure: Callable[[], float]) -> Sequence[float]:
    return [measure() for _ in range(REPETITIONS)]


if __name__ == "__main__":
    main()
