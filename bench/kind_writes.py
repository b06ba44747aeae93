"""The measurement of a million rows through each kind, and through the best handwritten statement for the same result.

The same result means the same table and the same change feed. `python -m bench.kind_writes [ROWS [KIND…]]` runs the
measurement. It is separate from the others, because it takes up to ten minutes. For all kinds, it writes
docs/bench-kinds.md. The timed run is the second run, in which one row in a hundred differs. Both contestants start
from copies of one table, in turns, in one session.
"""

import dataclasses
import json
import math
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import SparkSession

from ondatra_dagster.deltalog.commit_user_metadata import CommitMetadata
from ondatra_dagster.deltalog.log_reader import read_table_state
from ondatra_dagster.planning.input_versions import format_table_version
from ondatra_dagster.project.model import Model, ModelInput, Reference
from ondatra_dagster.project.model_kinds import KINDS
from ondatra_dagster.project.settings.read_settings_and_defaults import read_settings
from ondatra_dagster.warehouse.model_run import evaluate_query, write_model
from ondatra_dagster.warehouse.model_write_request import ModelWrite
from ondatra_dagster.warehouse.spark.session import Warehouse

REPETITIONS = 6  # by the fourth repetition, Java has compiled the code of both contestants
TIME_RATIO_LIMITS = {"merge": 1.2, "table": 1.4, "partition": 1.4, "tracked": 1.6, "scd2": 1.6, "append": 2.0}
PAGE_PATH = Path(__file__).parents[1] / "docs" / "bench-kinds.md"
KEYS = {"merge": ("id",), "tracked": ("doc",), "scd2": ("id",), "partition": ("day",)}
SOURCE = "raw.rows"
QUERY = "SELECT id, doc, day, name, amount FROM raw.rows"
# id is unique, a doc has ten rows, a day has ten thousand; one row in a hundred differs, all in a tenth of the days
ROWS = """
select id, cast(id div 10 as bigint) as doc, date_add(date'2024-01-01', cast(id div 10000 as int)) as day,
    concat('name of ', {name}) as name, cast(id % 1000 as double) / 7 as amount
from range({count})
"""
CHANGED_NAME = "if(id % 10 = 0 and id div 10000 % 10 = 0, -id, id)"
WIDE_CHANGE = "if(id % 100 = 0, -id, id)"

SAME_ROW = "s.doc <=> t.doc and s.day <=> t.day and s.name <=> t.name and s.amount <=> t.amount"
GROUP_HASH = "sum(cast(xxhash64(id, doc, day, name, amount) as decimal(38)))"
HANDWRITTEN_SQL = {
    "table": "insert overwrite {target} ({columns}) select {columns} from source",
    "merge": f"""
        merge into {{target}} t using source s on s.id = t.id
        when matched and not ({SAME_ROW}) then update set
            doc = s.doc, day = s.day, name = s.name, amount = s.amount
        when not matched then insert ({{columns}}) values ({{columns}})""",
    "tracked": f"""
        with changed as (
            select coalesce(n.doc, o.doc) as doc
            from (select doc, {GROUP_HASH} as h from source group by doc) n
            full join (select doc, {GROUP_HASH} as h from {{target}} group by doc) o on n.doc <=> o.doc
            where not (n.h <=> o.h))
        merge into {{target}} t using (
            select s.*, cast(null as bigint) as rowid from source s where doc in (select doc from changed)
            union all
            select null, null, null, null, null, __ondatra_rowid from {{target}}
            where doc in (select doc from changed)) s
        on s.rowid = t.__ondatra_rowid
        when matched then delete
        when not matched then insert ({{columns}}) values ({{columns}})""",
    "scd2": f"""
        merge into {{target}} t using (
            select s.*, o.__ondatra_rowid as closes, a.new
            from source s full join (select * from {{target}} where is_current) o on s.id = o.id
            cross join (select explode(array(true, false)) as new) a
            where not ({SAME_ROW.replace("t.", "o.")}) and if(a.new, s.id is not null, o.id is not null)) s
        on not s.new and s.closes = t.__ondatra_rowid
        when matched then update set valid_to_snapshot = {{version}}, is_current = false
        when not matched then insert ({{columns}}, valid_from_snapshot, is_current)
            values ({{columns}}, {{version}}, true)""",
    "partition": f"""
        insert overwrite {{target}} ({{columns}}, __ondatra_partition)
        select s.id, s.doc, s.day, s.name, s.amount, o.p from source s join (
            select n.day, o.p from (select day, {GROUP_HASH} as h from source group by day) n
            join (select day, max(__ondatra_partition) as p, {GROUP_HASH} as h from {{target}} group by day) o
            on n.day = o.day where n.h <> o.h) o on s.day = o.day""",
    "append": "insert into {target} ({columns}) select {columns} from source where id >= {count}",
}


@dataclasses.dataclass
class KindTimes:
    """The times of one kind's contestants, and the changes in the table's feed."""

    kind: str
    seconds: dict[str, float]
    change_counts: dict[str, dict[str, int]]

    def lines(self) -> list[str]:
        """Return a table line for each contestant, with its time divided by that of the handwritten statement.

        For append, the time is divided by that of the query alone.
        """
        base_seconds = self.seconds["its query" if "its query" in self.seconds else "by hand"]
        changes = ", ".join(f"{rows:,} {change}" for change, rows in sorted(self.change_counts["ondatra"].items()))
        cells = {"ondatra": f"{TIME_RATIO_LIMITS[self.kind]} | {changes}"}
        return [
            f"| {self.kind}: {name} | {seconds:.1f} | {seconds / base_seconds:.2f} | {cells.get(name, ' | ')} |"
            for name, seconds in self.seconds.items()
        ]


@dataclasses.dataclass
class KindBench:
    """A Spark session, and copies of the tables for it."""

    warehouse: Warehouse
    root: Path
    count: int

    @property
    def session(self) -> SparkSession:
        return self.warehouse.session

    def write_source(self, name: str, *, count: int | None = None, kind: str = "table") -> None:
        """Write these rows to the table raw.rows."""
        rows = ROWS.format(name=name, count=count or self.count)
        self.write_with_ondatra(self.build_model(kind, rows, name=SOURCE, reads=False))

    def build_model(self, kind: str, sql: str = QUERY, *, name: str = "mart.rows", reads: bool = True) -> Model:
        source = ModelInput(model=SOURCE)
        start = sql.index(SOURCE) if reads else 0
        return Model(
            name=name,
            path=Path("bench.sql"),
            file="bench.sql",
            kind=KINDS[kind],
            sql=sql,
            sql_line=1,
            definition=sql,
            inputs=(source,) if reads else (),
            references=(Reference(start=start, end=start + len(SOURCE), input=source, alias="rows"),) if reads else (),
            is_row_by_row=reads,
            key_columns=KEYS.get(kind, ()) if reads else (),
        )

    def write_with_ondatra(self, model: Model) -> None:
        versions = {SOURCE: self.version(SOURCE)} if model.inputs else {}
        metadata = CommitMetadata(definition=model.definition, inputs=versions, run_id="bench")
        frame = evaluate_query(self.warehouse, model, versions)
        write_model(self.warehouse, ModelWrite(model=model, frame=frame, note=metadata))

    def version(self, name: str) -> str:
        state = read_table_state(self.warehouse.table_path(name))
        if state is None:
            raise SystemExit(f"{name} is gone")
        return format_table_version(state)

    def write_by_hand(self, kind: str) -> None:
        path = self.warehouse.table_path("mart.rows")
        state = read_table_state(path)
        self.session.read.format("delta").load(self.warehouse.table_path(SOURCE)).drop(
            "__ondatra_rowid"
        ).createOrReplaceTempView("source")
        self.session.conf.set(
            "spark.sql.sources.partitionOverwriteMode", "dynamic" if kind == "partition" else "static"
        )
        statement = HANDWRITTEN_SQL[kind].format(
            target=f"delta.`{path}`",
            columns="id, doc, day, name, amount",
            count=self.count,
            version=state.log_version + 1 if state else 0,
        )
        self.session.sql(statement).collect()

    def measure_seconds(self, write_rows: Callable[[], None]) -> float:
        """Return how many seconds a write takes on a fresh copy of the table."""
        table = Path(self.warehouse.table_path("mart.rows"))
        table_copy = self.root / "kept"
        shutil.rmtree(table)
        shutil.copytree(table_copy, table)
        self.session.catalog.clearCache()
        start_time = time.perf_counter()
        write_rows()
        return time.perf_counter() - start_time

    def count_changes(self) -> dict[str, int]:
        """Return the number of changes by type in the newest version's feed. Both contestants must have the same."""
        path = self.warehouse.table_path("mart.rows")
        state = read_table_state(path)
        feed = self.session.read.format("delta").option("readChangeFeed", "true")
        rows = feed.option("startingVersion", state.version if state else 0).load(path)
        return {row["_change_type"]: row["count"] for row in rows.groupBy("_change_type").count().collect()}

    def compare_kind(self, kind: str) -> KindTimes:
        """Measure both contestants of a kind in turns."""
        extra_count = self.count // 100 if kind == "append" else 0
        source_kind = "append" if kind == "append" else "table"
        self.write_source("id", kind=source_kind)
        self.write_with_ondatra(self.build_model(kind))
        shutil.rmtree(self.root / "kept", ignore_errors=True)
        shutil.copytree(self.warehouse.table_path("mart.rows"), self.root / "kept")
        self.write_source(
            "id" if extra_count else CHANGED_NAME if kind == "partition" else WIDE_CHANGE,
            count=self.count + extra_count,
            kind=source_kind,
        )
        runs: dict[str, Callable[[], None]] = {
            "ondatra": lambda: self.write_with_ondatra(self.build_model(kind)),
            "by hand": lambda: self.write_by_hand(kind),
        }
        if kind == "append":
            runs["its query"] = self.run_query
            runs["ondatra, not row by row"] = lambda: self.write_with_ondatra(
                dataclasses.replace(self.build_model(kind), is_row_by_row=False)
            )
        times: dict[str, list[float]] = {name: [] for name in runs}
        change_counts = {}
        for repetition in range(REPETITIONS):
            for name, run in runs.items():
                times[name].append(self.measure_seconds(run))
                if repetition == 0:
                    change_counts[name] = self.count_changes()
        shutil.rmtree(self.warehouse.table_path("mart.rows"))
        shutil.rmtree(self.warehouse.table_path(SOURCE))
        return KindTimes(
            kind=kind, seconds={name: min(seconds) for name, seconds in times.items()}, change_counts=change_counts
        )

    def run_query(self) -> None:
        """Run only the query, and write its rows nowhere."""
        frame = evaluate_query(self.warehouse, self.build_model("append"), {SOURCE: self.version(SOURCE)})
        frame.write.format("noop").mode("overwrite").save()


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    kinds = sys.argv[2:] or list(HANDWRITTEN_SQL)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        settings = read_settings(root, {"ONDATRA_SPARK_MASTER": "local[2]"})
        with Warehouse(settings) as warehouse:
            warehouse.expect_bytes(math.inf)  # start Spark with the options for large work
            bench = KindBench(warehouse, root, count)
            contests = []
            for kind in kinds:
                contests.append(bench.compare_kind(kind))
                print(json.dumps(dataclasses.asdict(contests[-1])), flush=True)
    if set(kinds) == set(HANDWRITTEN_SQL):
        PAGE_PATH.write_text(build_kinds_page(contests, count), encoding="utf-8")


def build_kinds_page(contests: list[KindTimes], count: int) -> str:
    """Return the text of docs/bench-kinds.md."""
    lines = [line for contest in contests for line in contest.lines()]
    return f"""<!-- Written by `make bench-kinds`; edits are lost. -->
# The kinds, at {count:,} rows

A second run in which one row in a hundred differs (partition: in a tenth of the partitions; append: one more
row in a hundred), beside the best statement by hand that gives the same table and the same change feed.
Best of {REPETITIONS}, in turns, from copies of one table, in one session of `local[2]`.
Only the ratios mean something.
The statements are in `bench/kind_writes.py`.
An append's by hand names the rows that are new, which nobody knows beforehand.

| | s | times by hand (append: its query) | at most | the feed then tells |
|---|---:|---:|---:|---|
{chr(10).join(lines)}
"""


if __name__ == "__main__":
    main()
