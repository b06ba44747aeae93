"""The rules of the push contract, without faults and with them.

A rule gets a harness and a case, and yields a sentence for each error of the function.
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
    """Check that every row of each version is delivered, in the batches that the function configures."""
    with stage.open_run() as play, capture_push_warnings() as warnings:
        for rows in case.versions:
            play.write_version(rows)
            results = [result for each in play.run_sync() for result in each.results(with_context=True)]
            yield from (_undelivered_message(result) for result in results if not result.outcome.is_delivered)
            if play.state.depth or play.dead_letters:
                break
        yield from dict.fromkeys(warnings)


def flatten_results(handed: Sequence[RecordedPush]) -> Iterator[RowResult]:
    for each in handed:
        yield from each.results()


def _undelivered_message(result: RowResult) -> str:
    if not result.outcome.is_from_push:
        return f"{result.name}: {result.outcome.message}"
    said = f"{result.outcome.verdict}: {result.outcome.message}"
    return f"{result.name} is {said!r}, though the API did nothing wrong"


def check_batch_size_independence(stage: PushHarness, case: PushCase) -> Iterator[str]:
    """Check that the API's content doesn't depend on batches: chance decides which rows share one."""
    expected = contents_after_versions(stage, case)[-1]
    for size in (1, 2):
        with stage.open_run() as play:
            if play.is_mirror:
                return
            for rows in case.versions:
                play.deliver_version(rows, batch_size=size)
            if wrong := describe_differences(expected, comparable_content(play.api.state)):
                yield f"with batches of {size} rows the API ends with something else: {wrong}"


def check_api_mirrors_table(stage: PushHarness, case: PushCase) -> Iterator[str]:
    """Check that inserts, updates and deletes leave the API as if it had received the last version alone."""
    if not case.must_mirror_table:
        return
    held = contents_after_versions(stage, case)[-1]
    with stage.open_run() as play:
        play.deliver_version(_final_table_rows(case))
        expected = comparable_content(play.api.state)
    if wrong := describe_differences(expected, held):
        yield f"after {len(case.versions)} versions the API doesn't hold what the table has: {wrong}"


def contents_after_versions(stage: PushHarness, case: PushCase) -> list[ApiContent]:
    """Return the API's content after each version, without faults."""
    return deliver_versions(stage, case)[0]


def deliver_versions(stage: PushHarness, case: PushCase) -> tuple[list[ApiContent], list[str]]:
    """Return the API's content after each version, and each call of all versions as "METHOD path"."""
    contents = []
    with stage.open_run(case) as play:
        for rows in case.versions:
            play.deliver_version(rows)
            contents.append(comparable_content(play.api.state))
        return contents, [format_call(call) for call in play.api.calls]


def _final_table_rows(case: PushCase) -> Sequence[Row]:
    """Return the table's last rows: merge and partition keep rows that their query no longer gives."""
    if case.kind not in ("merge", "partition"):
        return case.versions[-1]
    newest: dict[str, list[Row]] = {}
    for rows in case.versions:
        given: dict[str, list[Row]] = {}
        for row in rows:
            given.setdefault(repr([row[name] for name in case.key]), []).append(row)
        newest.update(given)
    return [row for rows in newest.values() for row in rows]


def check_repeated_batch_repeats_calls(stage: PushHarness, case: PushCase) -> Iterator[str]:
    """Check that a batch which is repeated after a crash makes the same calls, so that its journal answers them."""
    with stage.open_run() as play:
        for rows in case.versions:
            play.write_version(rows)
            for handed in play.run_sync():
                if new := _new_call_message(play, handed):
                    yield new
                    return


def _new_call_message(play: ConformanceRun, handed: RecordedPush) -> str | None:
    again = play.repeat_push(handed)
    if not again.calls:
        return None
    call = again.calls[0]
    return (
        f"run again after a crash, the batch makes {call.method} {call.path} a second time, for it isn't the"
        " call that it was: keep times and chance out of addresses and bodies"
    )


def check_finalize_reports_failure(stage: PushHarness, case: PushCase) -> Iterator[str]:
    """Check that finalize() fails when its call fails: once it has returned, it isn't called again."""
    if "finalize" not in stage.library.config.functions:
        return
    with stage.open_run() as play:
        play.deliver_version(case.versions[0])
        before = len(play.api.calls)
        try:
            play.finalize(len(case.versions[0]), 0)
        except PushContractError as error:
            yield f"finalize() fails, though the API did nothing wrong: {error}"
            return
        if len(play.api.calls) == before:
            return
        play.api.faults.always = Fault(times=None, status=503)
        try:
            play.finalize(len(case.versions[0]), 0)
        except PushContractError:
            return
        told = "call fail() unless the answer is ok"
        yield f"finalize() comes to its end though its call was answered 503: {told}"


ONE_FAULT = (
    ("is answered 503", Fault(status=503)),
    ("is answered 429", Fault(status=429)),
    ("gets no answer, and isn't done", Fault(drop="before")),
    ("is done, but its answer is lost", Fault(drop="after")),
)


def check_one_failed_call_recovers(stage: PushHarness, case: PushCase) -> Iterator[str]:
    """Check that after any single failed call, retries lead to the same content as without the failure."""
    expected, calls = deliver_versions(stage, case)
    for number, call in enumerate(calls, 1):
        for what, fault in ONE_FAULT:
            with stage.open_run() as play:
                version = _write_until_call(play, case, number, fault)
                if version is None:
                    continue
                play.run_until_settled()
                if wrong := _recovery_problem(play, expected[version]):
                    yield f"when {call} {what}: {wrong}"
                    break  # the other faults would give the same message


def format_call(call: RecordedCall) -> str:
    return f"{call.method} {call.path}"


def _write_until_call(play: ConformanceRun, case: PushCase, number: int, fault: Fault) -> int | None:
    """Let the call with that number fail; return the version whose run made it, or None if no run did."""
    play.api.faults.at[number] = fault
    for version, rows in enumerate(case.versions):
        play.write_version(rows)
        play.run_sync()
        if play.api.faults.call_count >= number:
            return version
        play.run_until_settled()
    return None


def _recovery_problem(play: ConformanceRun, expected: ApiContent) -> str:
    if dead := play.dead_letters:
        if not dead[0].is_rejected:
            return f"{dead[0].key} is tried again until it is given up: {dead[0].error}"
        return f"{dead[0].key} is rejected ({dead[0].error}); what may go well later is an error"
    if play.state.depth:
        return "its rows are tried again and again, and never arrive"
    wrong = describe_differences(expected, comparable_content(play.api.state))
    return f"the API ends with something else: {wrong}" if wrong else ""


def check_refused_call_is_reported(stage: PushHarness, case: PushCase) -> Iterator[str]:
    """Check that rows which the API refuses don't count as delivered, and arrive when they are replayed."""
    expected, calls = deliver_versions(stage, case)
    for number, call in enumerate(calls, 1):
        with stage.open_run() as play:
            version = _write_until_call(play, case, number, Fault(status=422, message="refused"))
            if version is None:
                continue
            is_told = bool(play.state.depth or play.dead_letters)
            if is_told and case.model_kind.replaces_rows:
                continue  # a replayed delete also deletes the rows that replaced the old ones
            play.replay_dead()
            play.run_until_settled()
            if wrong := describe_differences(expected[version], comparable_content(play.api.state)):
                what = "once it is replayed" if is_told else "all rows count as delivered, and"
                yield f"when {call} is answered 422: {what} the API ends with something else: {wrong}"


RETRYABLE_REASON = "it may go well later, so it is an error"
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
OUTAGE_RUNS = 4  # three failed batches stop a run, and each operation needs its turn


def check_failure_verdicts(stage: PushHarness, case: PushCase) -> Iterator[str]:
    """Check that while all calls fail, no row counts as delivered, and no row is rejected that a retry may deliver."""
    expected = contents_after_versions(stage, case)
    for version in range(len(case.versions)):
        for what, (fault, why) in ALL_FAULTS.items():
            with stage.open_run() as play:
                yield from _wrong_verdict_messages(_push_during_outage(play, case, version, fault), what, why)
                if why is REJECT_REASON and case.model_kind.replaces_rows:
                    continue
                play.api.faults.always = None
                play.replay_dead()
                play.run_until_settled()
                if wrong := describe_differences(expected[version], comparable_content(play.api.state)):
                    yield f"when all calls were {what}, and then go well, the API ends wrong: {wrong}"


def _push_during_outage(play: ConformanceRun, case: PushCase, version: int, fault: Fault) -> list[RecordedPush]:
    """Return the results of a version all of whose calls fail, with one unit in each batch."""
    for rows in case.versions[:version]:
        play.deliver_version(rows)
    play.write_version(case.versions[version])
    play.api.faults.always = fault
    return [handed for _ in range(OUTAGE_RUNS) for handed in play.run_sync(batch_size=1)]


def _wrong_verdict_messages(handed: Sequence[RecordedPush], what: str, why: str) -> Iterator[str]:
    """Yield one message for each operation: the same line of the function handles all its rows."""
    told = set()
    for each in handed:
        for result in each.results() if each.calls else ():
            is_given_up = result.outcome.verdict is Verdict.REJECT and why is not REJECT_REASON
            if (result.outcome.is_delivered or is_given_up) and result.operation not in told:
                told.add(result.operation)
                yield f"{result.name} is {result.outcome.verdict!s:.6} though its calls were {what}: {why}"


def check_nulls_are_accepted(stage: PushHarness, case: PushCase) -> Iterator[str]:
    """Check that push() takes a null in any column outside the key: a failure there blocks all rows of the batch."""
    names = dict.fromkeys(name for row in case.versions[0] for name in row)
    for name in names:
        if name in case.key or name in case.never_null:
            continue
        nulls = [{**row, name: None} for row in case.versions[0]]
        with stage.open_run(case) as play:
            for rows in (nulls, case.versions[0], nulls):
                play.write_version(rows)
                fault = next((r for r in flatten_results(play.run_sync()) if not r.outcome.is_from_push), None)
                if fault:
                    yield f"where {name} is null, {fault.name} fails: {fault.outcome.message}"
                    break


ODD_KEY = "a/b c?d#e&f é"
QUOTED_ODD_KEY = urllib.parse.quote(ODD_KEY, safe="")
ODD_KEY_ENDING = "e&f é"  # missing in a path that was cut off


def check_odd_keys_are_quoted(stage: PushHarness, case: PushCase) -> Iterator[str]:
    """Check that a slash in a key doesn't lead to another address."""
    name = case.key[0] if case.key else ""
    old = case.versions[0][0].get(name)
    if not isinstance(old, str):
        return
    odd = case.with_versions(*([_with_odd_key(row, name, old) for row in rows] for rows in case.versions))
    paths = contents_after_versions(stage, case)[-1].keys()
    # an `answer` function of the user may name records without quoting
    expected = [{_path_with_key(path, old, key) for path in paths} for key in (QUOTED_ODD_KEY, ODD_KEY)]
    with stage.open_run(odd) as play:
        for rows in odd.versions:
            play.write_version(rows)
            verdicts = {result.outcome.verdict for result in flatten_results(play.run_sync())}
            if Verdict.REJECT in verdicts:
                return  # the API refuses such keys
            if Verdict.ERROR in verdicts:
                break
        held = set(comparable_content(play.api.state))
        if held not in expected or play.state.depth:
            strays = ", ".join(
                sorted({format_call(call) for call in play.api.calls if ODD_KEY_ENDING not in call.path})[:3]
            )
            remedy = f"write url_quote(row[{name!r}])"
            yield f"a {name} of {ODD_KEY!r} ends at another address ({strays}): {remedy}"


def _with_odd_key(row: Row, name: str, old: str) -> Row:
    return {**row, name: ODD_KEY} if row[name] == old else row


def _path_with_key(path: str, old: str, new: str) -> str:
    return "/".join(new if part == urllib.parse.quote(old, safe="") else part for part in path.split("/"))


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
    """Return a sentence for each error of the function; an empty list when it keeps the contract.

    The function runs with a real queue and a fake API, through all versions of the case and every fault.
    All calls go to the fake API on this machine, whatever addresses the function has.
    """
    try:
        library = load_library(case.library_path)
    except ProjectError as error:
        return [str(problem) for problem in error.problems]
    with open_harness(library, case) as stage:
        found = list(check_every_row_has_status(stage, case))
        if not found:  # otherwise every other rule would report the same error
            found = [problem for rule in LATER_RULES for problem in rule(stage, case)]
    return list(dict.fromkeys(found))
