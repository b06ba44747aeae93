"""The rules of alerts, which check a sync's runs or the absence of runs. This module sends nothing.

A rule that can't decide gives no result, such as the rule on rejects when nothing was attempted. The alert of
this rule keeps its state.
"""

import dataclasses
import re
from collections.abc import Iterator, Sequence
from statistics import fmean

from ondatra_dagster.count_time_and_size_format import format_count
from ondatra_dagster.future_time_correction import is_from_future
from ondatra_dagster.operations.alert_store import RuleResult, SubjectType
from ondatra_dagster.project.settings.read_settings_and_defaults import AlertSettings
from ondatra_dagster.sync.run_history_store import PastRun, RunMode, RunResult
from ondatra_dagster.sync.run_summary import GridRow, load_grid

FAILED, REJECTS, DEVIATION, NO_SUCCESS = "failed", "rejects", "deviation", "no_success"
RULES = (FAILED, REJECTS, DEVIATION, NO_SUCCESS)
RECOVERY_MESSAGES = {
    FAILED: "is no longer failing",
    REJECTS: "no longer has too many rejects",
    DEVIATION: "attempts its usual number of rows again",
    NO_SUCCESS: "is no longer late",
}
CRASH_MESSAGE = "its process was killed, or ended without a message; the next run continues from there"
COMPARED_RUNS = 10  # the mean over this many runs is the usual number of units
MIN_COMPARED_RUNS = 3  # with fewer earlier runs, there is no usual number
HOUR_SECONDS = 3600
MAX_DETAIL_CHARACTERS = 300
# the beginning of an error that ondatra itself wrote: it is safe to send, unlike an API's response
ERROR_CLASS = re.compile(r"HTTP \d{3}\b|lib/[\w./-]+\.star(:\d+)?|push\(\) returned")
# text to remove: quoted values, words with a digit; group 1 matches text to keep: a status, a file, text in backticks
VARYING_TEXT = re.compile(r"(HTTP \d{3}\b|`[^`\n]*`|[\w./-]+\.(?:star|sql)\b)|(?<!\w)'[^'\n]*'|\"[^\"\n]*\"|\S*\d\S*")


def is_rule_enabled(rule: str, settings: AlertSettings) -> bool:
    """Return whether the settings enable the rule."""
    limits = {REJECTS: settings.rejects, DEVIATION: settings.deviation, NO_SUCCESS: settings.no_success_hours}
    return rule == FAILED or limits.get(rule) is not None


def evaluate_failure(subject_type: SubjectType, subject: str, errors: Sequence[str], *, detail: str = "") -> RuleResult:
    """Return the result of the rule `failed`: a failure if there are `errors`, otherwise a recovery.

    `detail` is the first error of the run's rows.
    """
    sentence = "; ".join(errors)
    if not sentence:
        return RuleResult(type=subject_type, subject=subject, rule=FAILED, sentence=None)
    error_class = ERROR_CLASS.match(detail)
    short_sentence = f"{sentence} ({error_class[0]})" if error_class else sentence
    return RuleResult(
        type=subject_type,
        subject=subject,
        rule=FAILED,
        sentence=short_sentence,
        local_sentence=f"{sentence}: {detail[:MAX_DETAIL_CHARACTERS]}" if detail else sentence,
        cause=normalize_cause(short_sentence),
    )


def normalize_cause(sentence: str) -> str:
    """Return the sentence without numbers, times and quoted values, so that equal causes have equal texts."""
    return " ".join(VARYING_TEXT.sub(lambda match: match[1] or "…", sentence).split())


def evaluate_crash(sync_id: str) -> RuleResult:
    """Return the failure of a sync whose newest run was killed.

    This failure doesn't replace an earlier failure that is still active, because the earlier message says
    more.
    """
    failure = evaluate_failure(SubjectType.SYNC, sync_id, [CRASH_MESSAGE])
    return dataclasses.replace(failure, is_ignored_if_active=True)


def evaluate_runs(sync_id: str, runs: Sequence[PastRun], settings: AlertSettings, *, noun: str) -> Iterator[RuleResult]:
    """Yield the results of comparing the newest run with earlier runs.

    The newest run is the first of `runs`; `noun` is the word for a unit.
    """
    ended_runs = [run for run in runs if run.result in (RunResult.SUCCEEDED, RunResult.FAILED)]
    if not ended_runs:
        return
    newest_grid = load_grid(ended_runs[0])
    attempted_count, rejected_count = newest_grid.total(GridRow.ATTEMPTED), newest_grid.total(GridRow.REJECTED)
    if settings.rejects is not None and attempted_count:
        reject_share = rejected_count / attempted_count
        sentence = f"{rejected_count} of {format_count(attempted_count, noun)} rejected, over {settings.rejects:.0%}"
        yield RuleResult(
            subject=sync_id,
            rule=REJECTS,
            sentence=sentence if reject_share > settings.rejects else None,
            numbers={"rejected": rejected_count, "attempted": attempted_count, "limit": settings.rejects},
        )
    yield from _evaluate_deviation(sync_id, ended_runs, settings, noun)


def _evaluate_deviation(
    sync_id: str, ended_runs: Sequence[PastRun], settings: AlertSettings, noun: str
) -> Iterator[RuleResult]:
    counts = [load_grid(run).total(GridRow.ATTEMPTED) for run in ended_runs if _counts_all_pending(run)]
    newest_counts, earlier_counts = counts[:1], counts[1 : COMPARED_RUNS + 1]
    is_newest_complete = _counts_all_pending(ended_runs[0])
    if (
        settings.deviation is None
        or not is_newest_complete
        or len(earlier_counts) < MIN_COMPARED_RUNS
        or not fmean(earlier_counts)
    ):
        return
    average = fmean(earlier_counts)
    deviation = abs(newest_counts[0] - average) / average
    sentence = (
        f"{format_count(newest_counts[0], noun)} attempted,"
        f" {average:.0f} on average in the {len(earlier_counts)} runs before"
    )
    yield RuleResult(
        subject=sync_id,
        rule=DEVIATION,
        sentence=f"{sentence}: they differ by more than {settings.deviation:.0%}"
        if deviation > settings.deviation
        else None,
        numbers={
            "units": newest_counts[0],
            "mean": round(average, 1),
            "runs": len(earlier_counts),
            "limit": settings.deviation,
        },
    )


def _counts_all_pending(run: PastRun) -> bool:
    """Return whether the run attempted as many rows as there were to send.

    Return False if the run only retried waiting rows, was refused before it planned, or was held before it
    sent.
    """
    grid = load_grid(run)
    was_held = grid.total(GridRow.PLANNED) > 0 and not grid.total(GridRow.ATTEMPTED)
    return run.mode is RunMode.INCREMENTAL and "grid" in run.counts and not was_held


def evaluate_no_success(
    sync_id: str, *, waiting_since: float | None, last_success: float | None, now: float, settings: AlertSettings
) -> RuleResult | None:
    """Return the result of the rule `no_success`: whether rows have waited for too long without a successful run.

    Return None if the rule is off. A sync without waiting rows is never late.
    """
    if settings.no_success_hours is None:
        return None
    hours = 0.0
    if waiting_since is not None:
        if last_success is None or is_from_future(last_success, now):  # the time of the last success is unknown
            last_success = 0.0
        hours = max(now - max(waiting_since, last_success), 0.0) / HOUR_SECONDS
    sentence = f"no run has succeeded for {hours:.1f} hours, and there is something to send"
    return RuleResult(
        subject=sync_id,
        rule=NO_SUCCESS,
        sentence=sentence if hours > settings.no_success_hours else None,
        numbers={"hours": round(hours, 1), "limit": settings.no_success_hours},
    )
