"""Rules for values that nobody thinks of: nulls, and keys that mean something in an address."""

import urllib.parse
from collections.abc import Iterator

from ondatra_dagster.delivery.outcome import Verdict
from ondatra_dagster.testing.conformance.calm_rules import contents, results_of
from ondatra_dagster.testing.conformance.case import PushCase, Row
from ondatra_dagster.testing.conformance.content import content_of
from ondatra_dagster.testing.conformance.fault_rules import named
from ondatra_dagster.testing.conformance.play import Stage


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
                fault = next((r for r in results_of(play.run()) if not r.outcome.stated), None)
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
    paths = contents(stage, case)[-1].keys()
    # where an `answer` of the user's names records, it may do so without quotes
    expected = [{_renamed_path(path, old, key) for path in paths} for key in (QUOTED, ODD_KEY)]
    with stage.play(odd) as play:
        for rows in odd.versions:
            play.write(rows)
            verdicts = {result.outcome.verdict for result in results_of(play.run())}
            if Verdict.REJECT in verdicts:
                return  # the API takes no such keys
            if Verdict.ERROR in verdicts:
                break
        held = set(content_of(play.api.state))
        if held not in expected or play.state.depth:
            strays = ", ".join(
                sorted({named(call) for call in play.api.calls if ODD_END not in call.path})[:3]
            )
            remedy = f"write url_quote(row[{name!r}])"
            yield f"a {name} of {ODD_KEY!r} ends at another address ({strays}): {remedy}"


def _renamed(row: Row, name: str, old: str) -> Row:
    return {**row, name: ODD_KEY} if row[name] == old else row


def _renamed_path(path: str, old: str, new: str) -> str:
    return "/".join(new if part == urllib.parse.quote(old, safe="") else part for part in path.split("/"))
