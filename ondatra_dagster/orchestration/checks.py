"""The checks of models and sinks as Dagster's own. What they say is judged elsewhere."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

import dagster as dg

from ondatra_dagster.orchestration import shown
from ondatra_dagster.orchestration.engine import Engine
from ondatra_dagster.orchestration.naming import model_key, op_name, sink_key
from ondatra_dagster.orchestration.resources import failures
from ondatra_dagster.project.model import CheckWord, Model
from ondatra_dagster.sync.sync import Sync
from ondatra_dagster.sync.verdicts import JUDGES, CheckVerdict, Severity

CheckReport = TypeVar("CheckReport", dg.AssetCheckResult, dg.AssetCheckEvaluation)
DESCRIPTIONS = {
    "rejects": "Rows that the API refused for good, dead letters, and rows delivered with a warning",
    "undelivered": "Rows that wait, and why nothing came of them",
    "deletes_guard": "What the change would remove from the destination, and whether it may",
    "invalid_records": "Invalid rows, which aren't written: their key is null, or comes twice",
}
MISFITS = "Events that came before the columns were changed, and have no place in them any more"
SEVERITIES = {Severity.WARN: dg.AssetCheckSeverity.WARN, Severity.ERROR: dg.AssetCheckSeverity.ERROR}


WHAT_A_WORD_CHECKS = {
    CheckWord.CONSTRAINT: "Each row that the query gives; when one fails, nothing is written",
    CheckWord.WARNING: "Each row that the query gives; when one fails, all is written",
    CheckWord.AUDIT: "Each row of the table as it would be; when one fails, nothing is written",
}


def model_check_specs(model: Model) -> list[dg.AssetCheckSpec]:
    """The checks of a model: of its header, and of its key where it has one."""
    key = model_key(model)
    specs = [
        dg.AssetCheckSpec(
            check.name,
            asset=key,
            description=f"{check.condition}\n\n{WHAT_A_WORD_CHECKS[check.word]}",
            metadata={"condition": check.condition, "file": f"{model.file}:{check.line}"},
        )
        for check in model.checks
    ]
    if model.kind.sets_aside:
        name = "invalid_records"
        described = DESCRIPTIONS[name] if model.kind.has_query else MISFITS
        specs.insert(0, dg.AssetCheckSpec(name, asset=key, description=described))
    return specs


def sink_checks(sync: Sync) -> dg.AssetChecksDefinition:
    """A sink's checks: each can be run alone, and then looks at the queue as it is."""
    key = sink_key(sync.model)
    specs = [dg.AssetCheckSpec(name, asset=key, description=DESCRIPTIONS[name]) for name in JUDGES]

    @dg.multi_asset_check(name=op_name(key, "checks"), specs=specs, can_subset=True)
    def checks(
        context: dg.AssetCheckExecutionContext, ondatra: dg.ResourceParam[Engine]
    ) -> Iterator[dg.AssetCheckResult]:
        wanted = {check.name for check in context.selected_asset_check_keys}
        with failures(ondatra, sync.id):
            for verdict in () if ondatra.is_dry else ondatra.verdicts(sync):  # a dry run checks nothing
                if verdict.check in wanted:
                    yield check_report(dg.AssetCheckResult, key, verdict)

    return checks


def check_report(of: type[CheckReport], key: dg.AssetKey, verdict: CheckVerdict) -> CheckReport:
    """Return the verdict as a result for a check step, or as an evaluation for a step that fails.

    Results would come too late there: Dagster reads them when the step has ended.
    """
    return of(
        asset_key=key,
        check_name=verdict.check,
        passed=verdict.severity is Severity.PASS,
        severity=SEVERITIES.get(verdict.severity, dg.AssetCheckSeverity.ERROR),
        description=verdict.description,
        metadata=_metadata(verdict),
    )


def check_reports(
    of: type[CheckReport], key: dg.AssetKey, verdicts: Iterable[CheckVerdict]
) -> list[CheckReport]:
    """Return the verdicts as check_report() does."""
    return [check_report(of, key, verdict) for verdict in verdicts]


def _metadata(verdict: CheckVerdict) -> shown.Metadata:
    counts = {
        name: dg.MetadataValue.int(value) for name, value in verdict.counts.items() if isinstance(value, int)
    }
    return {**counts, **({"samples": shown.samples_table(verdict.samples)} if verdict.samples else {})}
