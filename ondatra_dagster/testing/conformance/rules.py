"""The rules of the push contract, each as plays that a function has to come through.

A rule gets a stage and a case, and yields a sentence for each fault that it finds. What the function does
when nothing goes wrong is looked at first: only if that is right do the rules about faults mean something.
"""

import urllib.parse
from collections.abc import Callable, Iterator, Sequence

from ondatra_dagster.delivery.outcome import Verdict
from ondatra_dagster.testing.calls import Call
from ondatra_dagster.testing.conformance.case import PushCase, Row
from ondatra_dagster.testing.conformance.content import Content, content_of, differences
from ondatra_dagster.testing.conformance.play import Handed, Play, Result, Stage, warnings_of_pushes
from ondatra_dagster.testing.faults import Fault

Rule = Callable[[Stage, PushCase], Iterator[str]]


# --- when nothing goes wrong


def every_row_gets_its_status(stage: Stage, case: PushCase) -> Iterator[str]:
    """Each version is delivered whole, in the batches that the function asks for."""
    with stage.play() as play, warnings_of_pushes() as warnings:
        for rows in case.versions:
            play.write(rows)
            results = [result for each in play.run() for result in each.results(with_context=True)]
            yield from (_undelivered(result) for result in results if not result.outcome.is_delivered)
            if play.state.depth or play.dead:
                break
        yield from dict.fromkeys(warnings)


def _results(handed: Sequence[Handed]) -> Iterator[Result]:
    for each in handed:
        yield from each.results()


def _undelivered(result: Result) -> str:
    if not result.outcome.stated:
        return f"{result.name}: {result.outcome.message}"
    said = f"{result.outcome.verdict}: {result.outcome.message}"
    return f"{result.name} is {said!r}, though the API did nothing wrong"


def batches_of_any_size_come_to_the_same(stage: Stage, case: PushCase) -> Iterator[str]:
    """Which rows share a batch is chance: it follows from what changed when."""
    expected = _contents(stage, case)[-1]
    for size in (1, 2):
        with stage.play() as play:
            if play.is_mirror:
                return
            for rows in case.versions:
                play.write(rows)
                play.run_to_the_end(batch_size=size)
            if wrong := differences(expected, content_of(play.api.state)):
                yield f"with batches of {size} rows the API ends with something else: {wrong}"


def the_api_ends_with_what_the_table_has(stage: Stage, case: PushCase) -> Iterator[str]:
    """Rows that came, changed and went leave the API as if it had got the last version alone."""
    if not case.mirrors:
        return
    held = _contents(stage, case)[-1]
    with stage.play() as play:
        play.write(_table_at_the_end(case))
        play.run_to_the_end()
        expected = content_of(play.api.state)
    if wrong := differences(expected, held):
        yield f"after {len(case.versions)} versions the API doesn't hold what the table has: {wrong}"


def _contents(stage: Stage, case: PushCase) -> list[Content]:
    """What the API holds after each version when nothing goes wrong."""
    contents = []
    with stage.play(case) as play:
        for rows in case.versions:
            play.write(rows)
            play.run_to_the_end()
            contents.append(content_of(play.api.state))
    return contents


def _table_at_the_end(case: PushCase) -> Sequence[Row]:
    """What merge and partition keep of rows that their query gives no more is in the table, too."""
    if case.kind not in ("merge", "partition"):
        return case.versions[-1]
    newest: dict[str, list[Row]] = {}
    for rows in case.versions:
        given: dict[str, list[Row]] = {}
        for row in rows:
            given.setdefault(repr([row[name] for name in case.key]), []).append(row)
        newest.update(given)
    return [row for rows in newest.values() for row in rows]


def a_batch_that_is_run_again_makes_the_same_calls(stage: Stage, case: PushCase) -> Iterator[str]:
    """After a crash calls that had their answer aren't made again, if they are the same calls."""
    with stage.play() as play:
        for rows in case.versions:
            play.write(rows)
            for handed in play.run():
                if new := _news(play, handed):
                    yield new
                    return


def _news(play: Play, handed: Handed) -> str | None:
    again = play.hand_again(handed)
    if not again.calls:
        return None
    call = again.calls[0]
    return (
        f"run again after a crash, the batch makes {call.method} {call.path} a second time, for it isn't the"
        " call that it was: keep times and chance out of addresses and bodies"
    )


# --- when calls fail

ONE_FAULT = (
    ("is answered 503", Fault(status=503)),
    ("is answered 429", Fault(status=429)),
    ("gets no answer, and isn't done", Fault(drop="before")),
    ("is done, but its answer is lost", Fault(drop="after")),
)


def one_failed_call_is_made_good(stage: Stage, case: PushCase) -> Iterator[str]:
    """Whichever call fails once, the next tries come to the same end as if nothing had happened."""
    expected = _contents(stage, case)
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
        return [_named(call) for call in play.api.calls]


def _named(call: Call) -> str:
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
        if dead[0].attempts:
            return f"{dead[0].key} is tried again until it is given up: {dead[0].error}"
        return f"{dead[0].key} is rejected ({dead[0].error}); what may go well later is an error"
    if play.state.depth:
        return "its rows are tried again and again, and never arrive"
    wrong = differences(expected, content_of(play.api.state))
    return f"the API ends with something else: {wrong}" if wrong else ""


def a_refused_call_is_told(stage: Stage, case: PushCase) -> Iterator[str]:
    """What an API refuses doesn't count as delivered, and arrives when it is replayed."""
    expected = _contents(stage, case)
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
    expected = _contents(stage, case)
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


# --- odd values


def a_null_is_a_value(stage: Stage, case: PushCase) -> Iterator[str]:
    """Any column may be null, but the key: to fail over one keeps all rows of the batch from going."""
    names = dict.fromkeys(name for row in case.versions[0] for name in row)
    for name in names:
        if name in case.key or name in case.never_null:
            continue
        nulls = [{**row, name: None} for row in case.versions[0]]
        with stage.play(case) as play:
            for rows in (nulls, case.versions[0], nulls):
                play.write(rows)
                fault = next((r for r in _results(play.run()) if not r.outcome.stated), None)
                if fault:
                    yield f"where {name} is null, {fault.name} fails: {fault.outcome.message}"
                    break


ODD_KEY = "a/b c?d#e&f é"
QUOTED = urllib.parse.quote(ODD_KEY, safe="")
ODD_END = "e&f é"  # what a path lacks that was cut off


def an_odd_key_stays_in_its_place(stage: Stage, case: PushCase) -> Iterator[str]:
    """A key with a slash in it must not become another address."""
    name = case.key[0] if case.key else ""
    old = case.versions[0][0].get(name)
    if not isinstance(old, str):
        return
    odd = case.with_versions(*([_renamed(row, name, old) for row in rows] for rows in case.versions))
    paths = _contents(stage, case)[-1].keys()
    # where an `answer` of the user's names records, it may do so without quotes
    expected = [{_renamed_path(path, old, key) for path in paths} for key in (QUOTED, ODD_KEY)]
    with stage.play(odd) as play:
        for rows in odd.versions:
            play.write(rows)
            verdicts = {result.outcome.verdict for result in _results(play.run())}
            if Verdict.REJECT in verdicts:
                return  # the API takes no such keys
            if Verdict.ERROR in verdicts:
                break
        held = set(content_of(play.api.state))
        if held not in expected or play.state.depth:
            strays = ", ".join(
                sorted({_named(call) for call in play.api.calls if ODD_END not in call.path})[:3]
            )
            remedy = f"write url_quote(row[{name!r}])"
            yield f"a {name} of {ODD_KEY!r} ends at another address ({strays}): {remedy}"


def _renamed(row: Row, name: str, old: str) -> Row:
    return {**row, name: ODD_KEY} if row[name] == old else row


def _renamed_path(path: str, old: str, new: str) -> str:
    return "/".join(new if part == urllib.parse.quote(old, safe="") else part for part in path.split("/"))


FIRST: tuple[Rule, ...] = (every_row_gets_its_status,)
RULES: tuple[Rule, ...] = (
    batches_of_any_size_come_to_the_same,
    the_api_ends_with_what_the_table_has,
    a_batch_that_is_run_again_makes_the_same_calls,
    one_failed_call_is_made_good,
    a_refused_call_is_told,
    a_failure_is_called_what_it_is,
    a_null_is_a_value,
    an_odd_key_stays_in_its_place,
)
