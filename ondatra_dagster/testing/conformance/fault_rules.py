"""Rules for when calls fail, one of them or all: nothing is lost, and nothing is given up that may arrive."""

from collections.abc import Iterator, Sequence

from ondatra_dagster.delivery.outcome import Verdict
from ondatra_dagster.testing.calls import Call
from ondatra_dagster.testing.conformance.calm_rules import contents
from ondatra_dagster.testing.conformance.case import PushCase
from ondatra_dagster.testing.conformance.content import Content, content_of, differences
from ondatra_dagster.testing.conformance.play import Handed, Play, Stage
from ondatra_dagster.testing.faults import Fault

ONE_FAULT = (
    ("is answered 503", Fault(status=503)),
    ("is answered 429", Fault(status=429)),
    ("gets no answer, and isn't done", Fault(drop="before")),
    ("is done, but its answer is lost", Fault(drop="after")),
)


def one_failed_call_is_made_good(stage: Stage, case: PushCase) -> Iterator[str]:
    """Whichever call fails once, the next tries come to the same end as if nothing had happened."""
    expected = contents(stage, case)
    for number, call in enumerate(_calls(stage, case), 1):
        for what, fault in ONE_FAULT:
            with stage.play() as play:
                version = _write_until_call(play, case, number, fault)
                if version is None:
                    continue
                play.run_to_the_end()
                if wrong := _not_made_good(play, expected[version]):
                    yield f"when {call} {what}: {wrong}"
                    break  # the other faults would tell the same once more


def _calls(stage: Stage, case: PushCase) -> list[str]:
    """Every call of the whole history, as a person knows it."""
    with stage.play(case) as play:
        for rows in case.versions:
            play.write(rows)
            play.run_to_the_end()
        return [named(call) for call in play.api.calls]


def named(call: Call) -> str:
    return f"{call.method} {call.path}"


def _write_until_call(play: Play, case: PushCase, number: int, fault: Fault) -> int | None:
    """Let the call of that number fail; the version in whose run that was."""
    play.api.faults.at[number] = fault
    for version, rows in enumerate(case.versions):
        play.write(rows)
        play.run()
        if play.api.faults.taken >= number:
            return version
        play.run_to_the_end()
    return None


def _not_made_good(play: Play, expected: Content) -> str:
    if dead := play.dead:
        if not dead[0].was_refused:
            return f"{dead[0].key} is tried again until it is given up: {dead[0].error}"
        return f"{dead[0].key} is rejected ({dead[0].error}); what may go well later is an error"
    if play.state.depth:
        return "its rows are tried again and again, and never arrive"
    wrong = differences(expected, content_of(play.api.state))
    return f"the API ends with something else: {wrong}" if wrong else ""


def a_refused_call_is_told(stage: Stage, case: PushCase) -> Iterator[str]:
    """What an API refuses doesn't count as delivered, and arrives when it is replayed."""
    expected = contents(stage, case)
    for number, call in enumerate(_calls(stage, case), 1):
        with stage.play() as play:
            version = _write_until_call(play, case, number, Fault(status=422, message="refused"))
            if version is None:
                continue
            is_told = bool(play.state.depth or play.dead)
            if is_told and case.kind_of.replaces_rows:
                continue  # a delete that is replayed takes the rows that came in its place
            play.replay()
            play.run_to_the_end()
            if wrong := differences(expected[version], content_of(play.api.state)):
                what = "once it is replayed" if is_told else "all rows count as delivered, and"
                yield f"when {call} is answered 422: {what} the API ends with something else: {wrong}"


NOT_NOW = "it may go well later, so it is an error"
NOT_THE_ROW = "it is the key that is wrong and not the row, so it is an error"
NEVER = "it was refused, so it is a reject"
WHAT_IT_IS = {408: NOT_NOW, 429: NOT_NOW, 500: NOT_NOW, 503: NOT_NOW, 401: NOT_THE_ROW, 403: NOT_THE_ROW}
WHAT_IT_IS |= {400: NEVER, 422: NEVER}
ALL_FAULTS = {
    **{f"answered {status}": (Fault(times=None, status=status), why) for status, why in WHAT_IT_IS.items()},
    "not answered": (Fault(times=None, drop="before"), NOT_NOW),
    "done without an answer": (Fault(times=None, drop="after"), NOT_NOW),
}
RUNS_OF_AN_OUTAGE = 4  # three batches stop a run, and each operation is to be seen


def a_failure_is_called_what_it_is(stage: Stage, case: PushCase) -> Iterator[str]:
    """While all calls fail, no row counts as delivered, and none is given up that may arrive later."""
    expected = contents(stage, case)
    for version in range(len(case.versions)):
        for what, (fault, why) in ALL_FAULTS.items():
            with stage.play() as play:
                yield from _wrongly_called(_failing(play, case, version, fault), what, why)
                if why is NEVER and case.kind_of.replaces_rows:
                    continue
                play.api.faults.always = None
                play.replay()
                play.run_to_the_end()
                if wrong := differences(expected[version], content_of(play.api.state)):
                    yield f"when all calls were {what}, and then go well, the API ends wrong: {wrong}"


def _failing(play: Play, case: PushCase, version: int, fault: Fault) -> list[Handed]:
    """What comes of a version all of whose calls fail, each unit by itself."""
    for rows in case.versions[:version]:
        play.write(rows)
        play.run_to_the_end()
    play.write(case.versions[version])
    play.api.faults.always = fault
    return [handed for _ in range(RUNS_OF_AN_OUTAGE) for handed in play.run(batch_size=1)]


def _wrongly_called(handed: Sequence[Handed], what: str, why: str) -> Iterator[str]:
    """Once for each operation: it is the same line of the function."""
    told = set()
    for each in handed:
        for result in each.results() if each.calls else ():
            is_given_up = result.outcome.verdict is Verdict.REJECT and why is not NEVER
            if (result.outcome.is_delivered or is_given_up) and result.operation not in told:
                told.add(result.operation)
                yield f"{result.name} is {result.outcome.verdict!s:.6} though its calls were {what}: {why}"
