"""Rules for when nothing goes wrong: unless a function keeps these, those about faults mean nothing.

A rule gets a stage and a case, and yields a sentence for each thing that the function gets wrong.
"""

from collections.abc import Iterator, Sequence

from ondatra_dagster.errors import PushContractError
from ondatra_dagster.testing.conformance.case import PushCase, Row
from ondatra_dagster.testing.conformance.content import Content, content_of, differences
from ondatra_dagster.testing.conformance.play import Handed, Play, Result, Stage, warnings_of_pushes
from ondatra_dagster.testing.faults import Fault


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


def results_of(handed: Sequence[Handed]) -> Iterator[Result]:
    for each in handed:
        yield from each.results()


def _undelivered(result: Result) -> str:
    if not result.outcome.stated:
        return f"{result.name}: {result.outcome.message}"
    said = f"{result.outcome.verdict}: {result.outcome.message}"
    return f"{result.name} is {said!r}, though the API did nothing wrong"


def batches_of_any_size_come_to_the_same(stage: Stage, case: PushCase) -> Iterator[str]:
    """Which rows share a batch is chance: it follows from what changed when."""
    expected = contents(stage, case)[-1]
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
    held = contents(stage, case)[-1]
    with stage.play() as play:
        play.write(_table_at_the_end(case))
        play.run_to_the_end()
        expected = content_of(play.api.state)
    if wrong := differences(expected, held):
        yield f"after {len(case.versions)} versions the API doesn't hold what the table has: {wrong}"


def contents(stage: Stage, case: PushCase) -> list[Content]:
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


def finalize_tells_whether_it_was_taken(stage: Stage, case: PushCase) -> Iterator[str]:
    """It is owed until it comes to its end: a failed call that it passes over is never made again."""
    if "finalize" not in stage.functions:
        return
    with stage.play() as play:
        play.write(case.versions[0])
        play.run_to_the_end()
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
