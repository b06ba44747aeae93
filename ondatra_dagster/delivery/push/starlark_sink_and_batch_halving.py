"""The sink of a lib/*.star file: it calls the functions, reads their results and halves refused batches.

With "on_batch_error": "bisect" it sends halves of a refused batch until only the refused rows are left.
"""

import contextlib
import dataclasses
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from ondatra_dagster.delivery.http.api_client import ApiClient, BatchCalls
from ondatra_dagster.delivery.http.rate_limit import RateLimit
from ondatra_dagster.delivery.push.push_interface import PushBatch, PushResult
from ondatra_dagster.delivery.push.push_return_values import parse_error, parse_poll_return, parse_push_return
from ondatra_dagster.delivery.push.starlark.load_and_call_push_functions import (
    EMPTY_BATCH,
    PushContext,
    PushLibrary,
    load_library,
)
from ondatra_dagster.delivery.queue.claimed_batches import group_by_key
from ondatra_dagster.delivery.response_journal import ResponseJournal
from ondatra_dagster.delivery.row_outcome import RowOutcome, Verdict
from ondatra_dagster.errors import PushContractError
from ondatra_dagster.row_changes import Column

log = logging.getLogger(__name__)

# statuses that the rows don't cause, but the caller, the address or the time
NON_ROW_STATUSES = frozenset({401, 403, 404, 408, 429})


def is_row_refusal(status_code: int | None) -> bool:
    """Return whether an answer with this status refuses the rows themselves."""
    return status_code is not None and 400 <= status_code < 500 and status_code not in NON_ROW_STATUSES


def push_with_bisection(
    parcel: PushBatch, push: Callable[[PushBatch], PushResult], *, last_status: Callable[[], int | None]
) -> PushResult:
    """Push a batch. If the API refuses it, push its halves, until no refused part can be split.

    Units aren't split: a unit that is refused alone is rejected. After a crash the same responses lead to the same
    halves.
    """
    result = push(parcel)
    if not result.has_raised or not is_row_refusal(last_status()):
        return result
    if len(group_by_key(parcel.units)) <= 1:  # it can't be split
        rejected_outcomes = {
            key: RowOutcome(Verdict.REJECT, outcome.message) for key, outcome in result.outcomes.items()
        }
        return result._replace(outcomes=rejected_outcomes)
    first, second = (push_with_bisection(half, push, last_status=last_status) for half in parcel.split_in_half())
    return PushResult(
        outcomes={**first.outcomes, **second.outcomes},
        warnings=(*first.warnings, *second.warnings),
        has_raised=first.has_raised or second.has_raised,
    )


class StarlarkSink:
    """The sink of one library: its push functions, with the client of its API."""

    def __init__(self, library: PushLibrary, api: ApiClient, context: PushContext) -> None:
        self._library = library
        self._api = api
        self._context = context

    def __call__(self, parcel: PushBatch, journal: ResponseJournal) -> PushResult:
        calls = self._api.begin_calls(journal)
        if self._library.config.push.on_batch_error == "bisect":
            result = push_with_bisection(
                parcel,
                lambda push_batch: self._call_push(push_batch, calls),
                last_status=lambda: calls.call_counts.last_status,
            )
        else:
            result = self._call_push(parcel, calls)
        self._log_warnings(parcel, result)
        call_counts = calls.call_counts
        return result._replace(
            calls=call_counts.calls,
            unanswered_calls=call_counts.unanswered_calls,
            is_outage=call_counts.is_outage,
            is_answered=call_counts.is_answered,
        )

    def poll(self, parcel: PushBatch, job: str) -> PushResult:
        calls = self._api.begin_calls()
        context = dataclasses.replace(self._context, batch_number=parcel.number, columns=parcel.layout.columns)
        job_ref = {"job_ref": json.loads(job)}
        try:
            return_value = self._library.call_function("poll", parcel.rows_json, job_ref, http=calls, context=context)
        except PushContractError as error:
            if calls.call_counts.is_outage:  # during an outage poll() can't know the state of the job
                result = PushResult(outcomes={}, is_open=True, warnings=(str(error),))
            else:
                result = parse_error(error, parcel.result_keys)
        else:
            result = parse_poll_return(return_value, parcel.result_keys, self._api.redactor.redact)
        self._log_warnings(parcel, result)
        # the job itself was a call: for a row without a status it is unknown whether the API took it
        return result._replace(calls=1, unanswered_calls=0, is_outage=calls.call_counts.is_outage)

    def _log_warnings(self, parcel: PushBatch, result: PushResult) -> None:
        for warning in result.warnings:
            log.warning("sync=%s batch=%d %s", self._context.sync_id, parcel.number, warning)

    def _call_push(self, parcel: PushBatch, calls: BatchCalls) -> PushResult:
        """Call push() once."""
        calls.call_counts.last_status = None
        context = dataclasses.replace(self._context, batch_number=parcel.number, columns=parcel.layout.columns)
        try:
            return_value = self._library.call_function("push", parcel.rows_json, http=calls, context=context)
        except PushContractError as error:
            return parse_error(error, parcel.result_keys)
        mode = self._library.config.push.batch_mode
        return parse_push_return(mode, return_value, parcel.result_keys, self._api.redactor.redact)

    def finalize(self, succeeded: int, failed: int, *, columns: Sequence[Column], journal: ResponseJournal) -> None:
        calls = self._api.begin_calls(journal)
        unit_counts = {"succeeded": succeeded, "failed": failed}
        context = dataclasses.replace(self._context, columns=columns)
        self._library.call_function("finalize", EMPTY_BATCH, unit_counts, http=calls, context=context)


@contextlib.contextmanager
def open_starlark_sink(
    library: Path, context: PushContext, *, secrets: Callable[[str], str | None], rates: Path
) -> Iterator[StarlarkSink]:
    """Open the sink of a lib/*.star file; its connections stay open until the context ends."""
    loaded_library = load_library(library)
    with contextlib.ExitStack() as stack:
        rate_limit = RateLimit.from_config(loaded_library.config, rates, lib=library.parent)
        if rate_limit:
            stack.callback(rate_limit.close)
        tokens = rates.with_name("tokens")
        api = stack.enter_context(
            ApiClient(loaded_library.config, secrets=secrets, rate_limit=rate_limit, token_folder=tokens)
        )
        yield StarlarkSink(loaded_library, api, context)
