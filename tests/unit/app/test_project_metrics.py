"""The metrics for Prometheus, read back with its own client."""

from datetime import UTC, datetime

from prometheus_client.parser import text_string_to_metric_families

from ondatra_dagster.app.project_metrics import ModelMetrics, SyncMetrics, format_project_metrics
from ondatra_dagster.sync.run_history_store import SyncTotals

CRM = SyncMetrics(
    sync="sync.crm",
    depth=3,
    oldest_seconds=12.5,
    dead=1,
    open_jobs=2,
    next_due_at=1_800_000_000.25,
    is_held=True,
    totals=SyncTotals(
        runs=4,
        failed_runs=1,
        interrupted_runs=2,
        last_success=datetime.fromtimestamp(1_700_000_000, UTC),
        row_counts={"attempted": 9, "succeeded": 6, "rejected": 1, "failed": 2},
    ),
    last_run_seconds=0.75,
)


def read(text: str) -> dict[tuple[str, ...], float]:
    """Return the samples by name and labels."""
    return {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_the_client_reads_every_number_unchanged() -> None:
    """Every metric has its type and its description."""
    text = format_project_metrics(
        [CRM], [ModelMetrics(model="mart.a", version=7, rows=2, disk_bytes=9, changed_at=1.5)]
    )
    assert {
        ("ondatra_sync_queue_depth", "sync.crm"): 3,
        ("ondatra_sync_oldest_waiting_seconds", "sync.crm"): 12.5,
        ("ondatra_sync_dead_letters", "sync.crm"): 1,
        ("ondatra_sync_open_jobs", "sync.crm"): 2,
        ("ondatra_sync_next_due_timestamp_seconds", "sync.crm"): 1_800_000_000.25,
        ("ondatra_sync_held", "sync.crm"): 1,
        ("ondatra_sync_runs_total", "sync.crm"): 4,
        ("ondatra_sync_failed_runs_total", "sync.crm"): 1,
        ("ondatra_sync_interrupted_runs_total", "sync.crm"): 2,
        ("ondatra_sync_units_total", "delivered", "sync.crm"): 6,
        ("ondatra_sync_units_total", "rejected", "sync.crm"): 1,
        ("ondatra_sync_units_total", "failed", "sync.crm"): 2,
        ("ondatra_sync_last_success_timestamp_seconds", "sync.crm"): 1_700_000_000,
        ("ondatra_sync_last_run_duration_seconds", "sync.crm"): 0.75,
        ("ondatra_table_version", "mart.a"): 7,
        ("ondatra_table_rows", "mart.a"): 2,
        ("ondatra_table_disk_bytes", "mart.a"): 9,
        ("ondatra_table_changed_timestamp_seconds", "mart.a"): 1.5,
    } == read(text)
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert {"counter", "gauge"} == {family.type for family in families.values()}
    assert all(family.documentation for family in families.values())


def test_an_unknown_value_is_omitted() -> None:
    """Zero would be wrong: a sync that never ran has no last success."""
    samples = read(format_project_metrics([SyncMetrics(sync="s")], [ModelMetrics(model="m")]))
    assert ("ondatra_sync_last_success_timestamp_seconds", "s") not in samples
    assert 0 == samples["ondatra_sync_queue_depth", "s"]
    assert not [name for name, *_ in samples if name.startswith("ondatra_table")]
    assert "" == format_project_metrics([], [])


def test_names_may_contain_any_character() -> None:
    """The text of a label comes from the user."""
    name = 'a "b"\\c\nd'
    assert 0 == read(format_project_metrics([SyncMetrics(sync=name)], []))["ondatra_sync_queue_depth", name]
