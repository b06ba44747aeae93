"""The rules of alerts: what each says of a sync's runs, or of its silence. Nothing is sent.

A rule that can't say anything now, as of rejects when nothing was attempted, gives no reading: what was said
before stands.
"""

import dataclasses
import re
from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Any

from ondatra_dagster.clock_jumps import is_ahead
from ondatra_dagster.operations.alert_book import Reading, SubjectType
from ondatra_dagster.project.settings.alert_settings import AlertSettings
from ondatra_dagster.sync.summary import Cell, Grid, grid_of
from ondatra_dagster.tracking.history import Mode, PastRun, Result
from ondatra_dagster.wording import count

FAILED, REJECTS, DEVIATION, NO_SUCCESS = "failed", "rejects", "deviation", "no_success"
RULES = (FAILED, REJECTS, DEVIATION, NO_SUCCESS)
RECOVERIES = {
    FAILED: "is no longer failing",
    REJECTS: "no longer has too many rejects",
    DEVIATION: "attempts its usual number of rows again",
    NO_SUCCESS: "is no longer late",
}
CRASHED = "its process was killed, or ended without a message; the next run goes on from there"
COMPARED = 10  # runs, whose mean is what is usual
FEWEST = 3  # of them, before anything is usual
HOUR_SECONDS = 3600
LONGEST_DETAIL = 300  # characters
# what ondatra itself puts first into an error: safe to send, unlike what an API answered
ERROR_CLASS = re.compile(r"HTTP \d{3}\b|lib/[\w./-]+\.star(:\d+)?|push\(\) returned")
# quoted values, and words with a digit in them; kept are a status, a file and what stands in backticks
VARYING = re.compile(
    r"(HTTP \d{3}\b|`[^`\n]*`|[\w./-]+\.(?:star|sql)\b)|(?<!\w)'[^'\n]*'|\"[^\"\n]*\"|\S*\d\S*"
)


def is_judged(rule: str, settings: AlertSettings) -> bool:
    """Whether the settings ask for that rule."""
    limits = {
        REJECTS: settings.rejects,
        DEVIATION: settings.deviation,
        NO_SUCCESS: settings.no_success_hours,
    }
    return rule == FAILED or limits.get(rule) is not None


def read_failure(
    subject_type: SubjectType, subject: str, errors: Sequence[str], *, detail: str = ""
) -> Reading:
    """Return whether a run failed, and why; `detail` is the first error of its rows."""
    sentence = "; ".join(errors)
    if not sentence:
        return Reading(type=subject_type, subject=subject, rule=FAILED, sentence=None)
    found = ERROR_CLASS.match(detail)
    sent = f"{sentence} ({found[0]})" if found else sentence
    return Reading(
        type=subject_type,
        subject=subject,
        rule=FAILED,
        sentence=sent,
        local_sentence=f"{sentence}: {detail[:LONGEST_DETAIL]}" if detail else sentence,
        cause=cause_of(sent),
    )


def cause_of(sentence: str) -> str:
    """Return the sentence without numbers, times and quoted values: the same for the same cause."""
    return " ".join(VARYING.sub(lambda found: found[1] or "…", sentence).split())


def read_crash(sync_id: str) -> Reading:
    """Return the failure of a sync whose newest run was killed.

    What is known of an earlier failure says more than that.
    """
    failure = read_failure(SubjectType.SYNC, sync_id, [CRASHED])
    return dataclasses.replace(failure, only_begins=True)


def read_runs(
    sync_id: str, runs: Sequence[PastRun], settings: AlertSettings, *, noun: str
) -> Iterator[Reading]:
    """Compare the newest run, the first of these, with those before it; a unit is called by the noun."""
    ended = [run for run in runs if run.result in (Result.SUCCEEDED, Result.FAILED)]
    if not ended:
        return
    newest = _grid(ended[0])
    attempted, rejected = newest.count(Cell.ATTEMPTED), newest.count(Cell.REJECTED)
    if settings.rejects is not None and attempted:
        share = rejected / attempted
        told = f"{rejected} of {count(attempted, noun)} rejected, over {settings.rejects:.0%}"
        yield Reading(
            subject=sync_id,
            rule=REJECTS,
            sentence=told if share > settings.rejects else None,
            numbers={"rejected": rejected, "attempted": attempted, "limit": settings.rejects},
        )
    yield from _deviation(sync_id, ended, settings, noun)


def _deviation(
    sync_id: str, ended: Sequence[PastRun], settings: AlertSettings, noun: str
) -> Iterator[Reading]:
    counts = [_grid(run).count(Cell.ATTEMPTED) for run in ended if _says_how_much(run)]
    newest, before = counts[:1], counts[1 : COMPARED + 1]
    is_of_newest = _says_how_much(ended[0])
    if settings.deviation is None or not is_of_newest or len(before) < FEWEST or not fmean(before):
        return
    mean = fmean(before)
    deviates = abs(newest[0] - mean) / mean
    told = f"{count(newest[0], noun)} attempted, {mean:.0f} on average in the {len(before)} runs before"
    yield Reading(
        subject=sync_id,
        rule=DEVIATION,
        sentence=f"{told}: they differ by more than {settings.deviation:.0%}"
        if deviates > settings.deviation
        else None,
        numbers={
            "units": newest[0],
            "mean": round(mean, 1),
            "runs": len(before),
            "limit": settings.deviation,
        },
    )


def _says_how_much(run: PastRun) -> bool:
    """Whether its rows are as many as there were to send.

    Not when it only tried again what waited, was refused before it looked, or was held before it sent.
    """
    grid = _grid(run)
    was_held = grid.count(Cell.PLANNED) > 0 and not grid.count(Cell.ATTEMPTED)
    return run.mode is Mode.INCREMENTAL and "grid" in run.counts and not was_held


def read_silence(
    sync_id: str,
    *,
    waiting_since: float | None,
    last_success: float | None,
    now: float,
    settings: AlertSettings,
) -> Reading | None:
    """Whether nothing has come of what is to be sent for too long; what nobody waits for isn't late."""
    if settings.no_success_hours is None:
        return None
    hours = 0.0
    if waiting_since is not None:
        if last_success is None or is_ahead(last_success, now):  # when it was isn't known
            last_success = 0.0
        hours = max(now - max(waiting_since, last_success), 0.0) / HOUR_SECONDS
    told = f"no run has succeeded for {hours:.1f} hours, and there is something to send"
    return Reading(
        subject=sync_id,
        rule=NO_SUCCESS,
        sentence=told if hours > settings.no_success_hours else None,
        numbers={"hours": round(hours, 1), "limit": settings.no_success_hours},
    )


def _grid(run: PastRun) -> Grid:
    counts: Any = run.counts
    return grid_of(counts.get("grid", {}))
