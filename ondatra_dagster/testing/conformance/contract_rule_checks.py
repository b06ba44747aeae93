"""The rules of the push contract, checked without faults and with faults of the API.

A rule gets a harness and a case, and yields a sentence for each error of the push function.
"""

import urllib.parse
from collections.abc import Callable, Iterator, Sequence

from ondatra_dagster.delivery.push.starlark.load_and_call_push_functions import load_library
from ondatra_dagster.delivery.row_outcome import Verdict
from ondatra_dagster.errors import ProjectError, PushContractError
from ondatra_dagster.testing.conformance.api_state_diff import ApiContent, comparable_content, describe_differences
from ondatra_dagster.testing.conformance.push_test_input import PushCase, Row
from ondatra_dagster.testing.conformance.sync_runs_on_fake_api import (
    ConformanceRun,
    PushHarness,
    RecordedPush,
    RowResult,
    capture_push_warnings,
    open_harness,
)
from ondatra_dagster.testing.fake_api_server import Fault, RecordedCall


def check_every_row_has_status(stage: PushHarness, case: PushCase) -> Iterator[str]:
    """Check that every row of each version is delivered, in batches of the size that the function configures."""
    with stage.open_run() as run, capture_push_warnings() as warnings:
        for rows in case.versions:
            run.write_version(rows)
            results = [result for push in run.run_sync() for result in push.results(with_context=True)]
            yield from (_undelivered_message(result) for result in results if not result.outcome.is_delivered)
            if run.state.depth or run.dead_letters:
                break
        yield from dict.fromkeys(warnings)


def flatten_results(pushes: Sequence[RecordedPush]) -> Iterator[RowResult]:
    for push in pushes:
        yield from push.results()


def _undelivered_message(result: RowResult) -> str:
    if not result.outcome.is_from_push:
        return f"{result.name}: {result.outcome.message}"
    verdict_text = f"{result.outcome.verdict}: {result.outcome.message}"
    return f"{result.name} is {verdict_text!r}, though the API did nothing wrong"


def check_batch_size_independence(stage: PushHarness, case: PushCase) -> Iterator[str]:
    """Check that the API's content doesn't depend on the batch size: chance decides which rows share a batch."""
    expected_content = contents_after_versions(stage, case)[-1]
    for size in (1, 2):
        with stage.open_run() as run:
            if run.is_mirror:
                return
            for rows in case.versions:
                run.deliver_version(rows, batch_size=size)
            if differences := describe_differences(expected_content, comparable_content(run.api.state)):
                yield f"with batches of {size} rows the API ends with other content: {differences}"


def check_api_mirrors_table(stage: PushHarness, case: PushCase) -> Iterator[str]:
    """Check that inserts, updates and deletes leave the API as if it had only received the last version."""
    if not case.must_mirror_table:
        return
    actual_content = contents_after_versions(stage, case)[-1]
    with stage.open_run() as run:
        run.deliver_version(_final_table_rows(case))
        expected_content = comparable_content(run.api.state)
    if differences := describe_differences(expected_content, actual_content):
        yield f"after {len(case.versions)} versions the API doesn't hold what the table has: {differences}"


def contents_after_versions(stage: PushHarness, case: PushCase) -> list[ApiContent]:
    """Return the API's content after each version, delivered without faults."""
    return deliver_versions(stage, case)[0]


def deliver_versions(stage: PushHarness, case: PushCase) -> tuple[list[ApiContent], list[str]]:
    """Return the API's content after each version, and the calls of all versions, each as "METHOD path"."""
    contents = []
    with stage.open_run(case) as run:
        for rows in case.versions:
            run.deliver_version(rows)
            contents.append(comparable_content(run.api.state))
        return contents, [format_call(call) for call in run.api.calls]


def _final_table_rows(case: PushCase) -> Sequence[Row]:
    """Return the table's rows after the last version.

    The kinds merge and partition keep rows that the query no longer returns.
    """
    if case.kind not in ("merge", "partition"):
        return case.versions[-1]
    newest_rows_by_key: dict[str, list[Row]] = {}
    for rows in case.versions:
        rows_by_key: dict[str, list[Row]] = {}
        for row in rows:
            rows_by_key.setdefault(repr([row[name] for name in case.key]), []).append(row)
        newest_rows_by_key.update(rows_by_key)
    return [row for rows in newest_rows_by_key.values() for row in rows]


def check_repeated_batch_repeats_calls(stage: PushHarness, case: PushCase) -> Iterator[str]:
    """Check that a batch that is repeated after a crash makes the same calls, so that its journal can answer them."""
    with stage.open_run() as run:
        for rows in case.versions:
            run.write_version(rows)
            for push in run.run_sync():
                if message := _new_call_message(run, push):
                    yield message
                    return


def _new_call_message(play: ConformanceRun, push: RecordedPush) -> str | None:
    repeated_push = play.repeat_push(push)
    if not repeated_push.calls:
        return None
    call = repeated_push.calls[0]
    return (
        f"when it runs again after a crash, the batch calls {call.method} {call.path} a second time, because the"
        " call is different: keep times and random values out of addresses and bodies"
    )


def check_finalize_reports_failure(stage: PushHarness, case: PushCase) -> Iterator[str]:
    """Check that finalize() fails if its call fails, because it isn't called again after it has returned."""
    if "finalize" not in stage.library.config.functions:
        return
    with stage.open_run() as run:
        run.deliver_version(case.versions[0])
        calls_before = len(run.api.calls)
        try:
            run.finalize(len(case.versions[0]), 0)
        except PushContractError as error:
            yield f"finalize() fails, though the API did nothing wrong: {error}"
            return
        if len(run.api.calls) == calls_before:
            return
        run.api.faults.always = Fault(times=None, status=503)
        try:
            run.finalize(len(case.versions[0]), 0)
        except PushContractError:
            return
        remedy = "call fail() unless the answer is ok"
        yield f"finalize() ends normally though its call was answered 503: {remedy}"


ONE_FAULT = (
    ("is answered 503", Fault(status=503)),
    ("is answered 429", Fault(status=429)),
    ("gets no answer, and isn't done", Fault(drop="before")),
    ("is done, but its answer is lost", Fault(drop="after")),
)


def check_one_failed_call_recovers(stage: PushHarness, case: PushCase) -> Iterator[str]:
    """Check that after any single failed call, retries lead to the same content as without this failure."""
    expected_contents, calls = deliver_versions(stage, case)
    for number, call in enumerate(calls, 1):
        for fault_text, fault in ONE_FAULT:
            with stage.open_run() as run:
                version = _write_until_call(run, case, number, fault)
                if version is None:
                    continue
                run.run_until_settled()
                if problem := _recovery_problem(run, expected_contents[version]):
                    yield f"when {call} {fault_text}: {problem}"
                    break  # the other faults would lead to the same message


def format_call(call: RecordedCall) -> str:
    return f"{call.method} {call.path}"


def _write_until_call(play: ConformanceRun, case: PushCase, number: int, fault: Fault) -> int | None:
    """Make the call with this number fail. Return the version whose run made this call, or None if no run made it."""
    play.api.faults.at[number] = fault
    for version, rows in enumerate(case.versions):
        play.write_version(rows)
        play.run_sync()
        if play.api.faults.call_count >= number:
            return version
        play.run_until_settled()
    return None


def _recovery_problem(play: ConformanceRun, expected_content: ApiContent) -> str:
    if dead_letters := play.dead_letters:
        if not dead_letters[0].is_rejected:
            return f"{dead_letters[0].key} is retried until it is given up: {dead_letters[0].error}"
        return f"{dead_letters[0].key} is rejected ({dead_letters[0].error}); what may succeed later is an error"
    if play.state.depth:
        return "its rows are retried again and again, and never arrive"
    differences = describe_differences(expected_content, comparable_content(play.api.state))
    return f"the API ends with other content: {differences}" if differences else ""


def check_refused_call_is_reported(stage: PushHarness, case: PushCase) -> Iterator[str]:
    """Check that rows which the API refuses don't count as delivered, and that a replay delivers them."""
    expected_contents, calls = deliver_versions(stage, case)
    for number, call in enumerate(calls, 1):
        with stage.open_run() as run:
            version = _write_until_call(run, case, number, Fault(status=422, message="refused"))
            if version is None:
                continue
            is_reported = bool(run.state.depth or run.dead_letters)
            if is_reported and case.model_kind.replaces_rows:
                continue  # a replayed delete would also delete the rows that replaced the old ones
            run.replay_dead()
            run.run_until_settled()
            if differences := describe_differences(expected_contents[version], comparable_content(run.api.state)):
                delivery_text = "once it is replayed" if is_reported else "all rows count as delivered, and"
                yield f"when {call} is answered 422: {delivery_text} the API ends with other content: {differences}"


RETRYABLE_REASON = "it may succeed later, so it is an error"
CREDENTIALS_REASON = "it is the key that is wrong and not the row, so it is an error"
REJECT_REASON = "it was refused, so it is a reject"
REASONS_BY_STATUS = {
    **dict.fromkeys((408, 429, 500, 503), RETRYABLE_REASON),
    **dict.fromkeys((401, 403), CREDENTIALS_REASON),
    **dict.fromkeys((400, 422), REJECT_REASON),
}
ALL_FAULTS = {
    **{f"answered {status}": (Fault(times=None, status=status), why) for status, why in REASONS_BY_STATUS.items()},
    "not answered": (Fault(times=None, drop="before"), RETRYABLE_REASON),
    "done without an answer": (Fault(times=None, drop="after"), RETRYABLE_REASON),
}
OUTAGE_RUNS = 4  # a run stops after three failed batches, and each operation has to be tried


def check_failure_verdicts(stage: PushHarness, case: PushCase) -> Iterator[str]:
    """Check the verdicts on rows while all calls fail.

    No row may count as delivered, and no row may be rejected that a retry can deliver.
    """
    expected_contents = contents_after_versions(stage, case)
    for version in range(len(case.versions)):
        for fault_text, (fault, verdict_reason) in ALL_FAULTS.items():
            with stage.open_run() as run:
                yield from _wrong_verdict_messages(
                    _push_during_outage(run, case, version, fault), fault_text, verdict_reason
                )
                if verdict_reason is REJECT_REASON and case.model_kind.replaces_rows:
                    continue
                run.api.faults.always = None
                run.replay_dead()
                run.run_until_settled()
                if differences := describe_differences(expected_contents[version], comparable_content(run.api.state)):
                    yield f"when all calls were {fault_text}, and then succeed, the API ends wrong: {differences}"


def _push_during_outage(play: ConformanceRun, case: PushCase, version: int, fault: Fault) -> list[RecordedPush]:
    """Return the pushes of a version during an outage: all calls fail, and each batch has one unit."""
    for rows in case.versions[:version]:
        play.deliver_version(rows)
    play.write_version(case.versions[version])
    play.api.faults.always = fault
    return [push for _ in range(OUTAGE_RUNS) for push in play.run_sync(batch_size=1)]


def _wrong_verdict_messages(pushes: Sequence[RecordedPush], label: str, reason: str) -> Iterator[str]:
    """Yield a message for each operation with a wrong verdict.

    One message is enough, because the same line of the function handles all rows of an operation.
    """
    reported_operations = set()
    for push in pushes:
        for result in push.results() if push.calls else ():
            is_wrongly_rejected = result.outcome.verdict is Verdict.REJECT and reason is not REJECT_REASON
            if (result.outcome.is_delivered or is_wrongly_rejected) and result.operation not in reported_operations:
                reported_operations.add(result.operation)
                yield f"{result.name} is {result.outcome.verdict!s:.6} though its calls were {label}: {reason}"


def check_nulls_are_accepted(stage: PushHarness, case: PushCase) -> Iterator[str]:
    """Check that push() accepts a null in any column outside the key.

    Otherwise one null blocks all rows of its batch.
    """
    column_names = dict.fromkeys(name for row in case.versions[0] for name in row)
    for name in column_names:
        if name in case.key or name in case.never_null:
            continue
        rows_with_null = [{**row, name: None} for row in case.versions[0]]
        with stage.open_run(case) as run:
            for rows in (rows_with_null, case.versions[0], rows_with_null):
                run.write_version(rows)
                failed_result = next(
                    (result for result in flatten_results(run.run_sync()) if not result.outcome.is_from_push), None
                )
                if failed_result:
                    yield f"where {name} is null, {failed_result.name} fails: {failed_result.outcome.message}"
                    break


ODD_KEY = "a/b c?d#e&f é"
QUOTED_ODD_KEY = urllib.parse.quote(ODD_KEY, safe="")
ODD_KEY_ENDING = "e&f é"  # the ending is missing if the API gets a path that was cut off


def check_odd_keys_are_quoted(stage: PushHarness, case: PushCase) -> Iterator[str]:
    """Check that a key with a slash is quoted in paths, so that it doesn't lead to another path."""
    name = case.key[0] if case.key else ""
    old_key = case.versions[0][0].get(name)
    if not isinstance(old_key, str):
        return
    odd_case = case.with_versions(*([_with_odd_key(row, name, old_key) for row in rows] for rows in case.versions))
    paths = contents_after_versions(stage, case)[-1].keys()
    # a user's `answer` function may store records without quoting their names
    expected_paths = [{_path_with_key(path, old_key, key) for path in paths} for key in (QUOTED_ODD_KEY, ODD_KEY)]
    with stage.open_run(odd_case) as run:
        for rows in odd_case.versions:
            run.write_version(rows)
            verdicts = {result.outcome.verdict for result in flatten_results(run.run_sync())}
            if Verdict.REJECT in verdicts:
                return  # the API refuses such keys, so there is nothing to check
            if Verdict.ERROR in verdicts:
                break
        actual_paths = set(comparable_content(run.api.state))
        if actual_paths not in expected_paths or run.state.depth:
            wrong_calls = ", ".join(
                sorted({format_call(call) for call in run.api.calls if ODD_KEY_ENDING not in call.path})[:3]
            )
            remedy = f"write url_quote(row[{name!r}])"
            yield f"a {name} of {ODD_KEY!r} ends at another address ({wrong_calls}): {remedy}"


def _with_odd_key(row: Row, name: str, old: str) -> Row:
    return {**row, name: ODD_KEY} if row[name] == old else row


def _path_with_key(path: str, old: str, new: str) -> str:
    return "/".join(new if segment == urllib.parse.quote(old, safe="") else segment for segment in path.split("/"))


Rule = Callable[[PushHarness, PushCase], Iterator[str]]
LATER_RULES: tuple[Rule, ...] = (
    check_batch_size_independence,
    check_api_mirrors_table,
    check_repeated_batch_repeats_calls,
    check_finalize_reports_failure,
    check_one_failed_call_recovers,
    check_refused_call_is_reported,
    check_failure_verdicts,
    check_nulls_are_accepted,
    check_odd_keys_are_quoted,
)


def problems_of(case: PushCase) -> list[str]:
    """Return a sentence for each error of the push function; an empty list if it keeps the contract.

    The function runs with a real queue and a fake API, through all versions of the case and every fault. All its calls
    go to the fake API on this machine, whatever addresses it has.
    """
    try:
        library = load_library(case.library_path)
    except ProjectError as error:
        return [str(problem) for problem in error.problems]
    with open_harness(library, case) as harness:
        problems = list(check_every_row_has_status(harness, case))
        if not problems:  # if this rule found problems, every other rule would report the same ones
            problems = [problem for rule in LATER_RULES for problem in rule(harness, case)]
    return list(dict.fromkeys(problems))
