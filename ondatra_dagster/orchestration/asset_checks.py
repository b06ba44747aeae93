"""The Dagster asset checks of models and syncs. The packages `sync` and `app` decide their results."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

import dagster as dg

from ondatra_dagster.app.model_and_sync_steps import RunService
from ondatra_dagster.orchestration import dagster_metadata
from ondatra_dagster.orchestration.asset_keys import model_key, op_name, sync_key
from ondatra_dagster.orchestration.resources import raise_dagster_failure
from ondatra_dagster.project.model import CheckType, Model
from ondatra_dagster.sync.sync_checks import SYNC_CHECKS, Severity, SyncCheckResult
from ondatra_dagster.sync.sync_definition import Sync

CheckReport = TypeVar("CheckReport", dg.AssetCheckResult, dg.AssetCheckEvaluation)
CHECK_DESCRIPTIONS = {
    "rejects": "Rows that the API rejected, dead letters, and rows delivered with a warning",
    "undelivered": "Rows that were not delivered, and why",
    "deletes_guard": "Records that the change would remove at the destination, and whether that is allowed",
    "invalid_records": "Invalid rows, which aren't written: their key is null or a duplicate",
}
INVALID_EVENTS_DESCRIPTION = "Events that arrived before the columns were changed, and no longer fit them"
SEVERITIES = {Severity.WARN: dg.AssetCheckSeverity.WARN, Severity.ERROR: dg.AssetCheckSeverity.ERROR}
WORD_DESCRIPTIONS = {
    CheckType.CONSTRAINT: "Each row of the query's result; if one fails, nothing is written",
    CheckType.WARNING: "Each row of the query's result; if one fails, all rows are still written",
    CheckType.AUDIT: "Each row that the table would have; if one fails, nothing is written",
}


def model_check_specs(model: Model) -> list[dg.AssetCheckSpec]:
    """Return the specs of a model's checks: the checks in its header, and the check of its invalid rows if any."""
    key = model_key(model)
    specs = [
        dg.AssetCheckSpec(
            check.name,
            asset=key,
            description=f"{check.condition}\n\n{WORD_DESCRIPTIONS[check.check_type]}",
            metadata={"condition": check.condition, "file": f"{model.file}:{check.line}"},
        )
        for check in model.checks
    ]
    if model.kind.has_invalid_table:
        name = "invalid_records"
        description = CHECK_DESCRIPTIONS[name] if model.kind.has_query else INVALID_EVENTS_DESCRIPTION
        specs.insert(0, dg.AssetCheckSpec(name, asset=key, description=description))
    return specs


def sync_checks(sync: Sync) -> dg.AssetChecksDefinition:
    """Return the asset checks of a sync. Each check can be run alone, and then judges the current queue."""
    key = sync_key(sync.model)
    specs = [dg.AssetCheckSpec(name, asset=key, description=CHECK_DESCRIPTIONS[name]) for name in SYNC_CHECKS]

    @dg.multi_asset_check(name=op_name(key, "checks"), specs=specs, can_subset=True)
    def check_sync(
        context: dg.AssetCheckExecutionContext, ondatra: dg.ResourceParam[RunService]
    ) -> Iterator[dg.AssetCheckResult]:
        check_names = {check.name for check in context.selected_asset_check_keys}
        with raise_dagster_failure(ondatra, sync.id):
            for check_result in () if ondatra.is_dry else ondatra.verdicts(sync):  # a dry run checks nothing
                if check_result.name in check_names:
                    yield build_check_report(dg.AssetCheckResult, key, check_result)

    return check_sync


def build_check_report(report_type: type[CheckReport], key: dg.AssetKey, verdict: SyncCheckResult) -> CheckReport:
    """Return a verdict as a check result, or as a check evaluation for a step that fails.

    For a failing step, a result would be too late, because Dagster reads results when the step has ended.
    """
    counts = {name: dg.MetadataValue.int(value) for name, value in verdict.counts.items() if isinstance(value, int)}
    samples = {"samples": dagster_metadata.samples_table(verdict.samples)} if verdict.samples else {}
    return report_type(
        asset_key=key,
        check_name=verdict.name,
        passed=verdict.severity is Severity.PASS,
        severity=SEVERITIES.get(verdict.severity, dg.AssetCheckSeverity.ERROR),
        description=verdict.description,
        metadata={**counts, **samples},
    )


def build_check_reports(
    report_type: type[CheckReport], key: dg.AssetKey, verdicts: Iterable[SyncCheckResult]
) -> list[CheckReport]:
    """Return a report for each verdict; see build_check_report()."""
    return [build_check_report(report_type, key, check_result) for check_result in verdicts]
