"""The page docs/push-functions.md: it has every key and function, and its examples work."""

import collections
import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ondatra_dagster.delivery.push.api_dict_parser import (
    API_READERS,
    AUTH_READERS,
    FUNCTION_PARAMETERS,
    OAUTH2_READERS,
    PUSH_READERS,
    parse_api_text,
)
from ondatra_dagster.delivery.push.starlark.load_and_call_push_functions import load_library
from ondatra_dagster.delivery.push.starlark.parsing_and_evaluation import BUILTIN_NAMES
from ondatra_dagster.delivery.row_outcome import Verdict
from ondatra_dagster.testing import Answer, PushCase, Request, State, problems_of
from ondatra_dagster.testing.fake_api import AnswerFunction

PAGE = Path(__file__).parents[4].joinpath("docs/push-functions.md").read_text(encoding="utf-8")
GIVEN = sorted({name for names in FUNCTION_PARAMETERS.values() for name in names})
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
KEYS_WITH_DEFAULTS = re.compile(r"^\| ((?:`\w+`(?:, )?)+) \| (`[^|]+`) \|", re.MULTILINE)


@pytest.mark.parametrize(
    "word", [*API_READERS, *PUSH_READERS, *AUTH_READERS, *OAUTH2_READERS, *GIVEN, *BUILTIN_NAMES, *Verdict]
)
def test_every_key_function_and_verdict_is_on_the_page(word: str) -> None:
    """Users don't know about a key that isn't documented."""
    assert re.search(rf"[`\"]{word}\b", PAGE)


def written_defaults() -> dict[str, str]:
    """Return the keys that have a default on the page, with that default as code."""
    return {
        key: value
        for keys, values in KEYS_WITH_DEFAULTS.findall(PAGE)
        for key, value in zip(re.findall(r"`(\w+)`", keys), re.findall(r"`([^`]+)`", values), strict=True)
        if key in (*API_READERS, *PUSH_READERS)
    }


def test_the_defaults_on_the_page_are_those_of_the_parser() -> None:
    """Users plan with these numbers: how often, how long, how many."""
    defaults = written_defaults()
    own = {"base_url", "auth", "rate_limit", "destination", "object", "push"}  # no default, or the file's name
    assert {*API_READERS, *PUSH_READERS} - own == set(defaults)
    others, for_push = (
        ", ".join(f'"{key}": {defaults[key]}' for key in keys if key in defaults)
        for keys in (API_READERS, PUSH_READERS)
    )
    api, problems = parse_api_text(f'API = {{{others}, "push": {{{for_push}}}}}', "lib/crm.star")
    assert [] == list(problems)
    assert parse_api_text("", "lib/crm.star")[0] == api


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_example_can_be_loaded(example: str, write_library: Callable[..., Path]) -> None:
    """Users copy them."""
    assert load_library(write_library(example=example)).config.name == "example"


def test_the_example_of_a_test_works(write_library: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's push function passes the page's test. A wrong one fails with the message on the page."""
    of_the_test, of_the_api = re.findall(r"```py\n(.*?)```", PAGE, re.DOTALL)
    library = write_library(contacts=EXAMPLES[0])
    monkeypatch.chdir(library.parents[1])
    names: dict[str, Any] = {}
    exec(of_the_test, names)
    names["test_contacts"]()
    exec(of_the_api, names)
    monkeypatch.setitem(names, "PushCase", functools.partial(names["PushCase"], answer=names["api"]))
    names["test_contacts"]()
    forgetful = re.sub(r"        if answer.status_code == 409.*?json=contact\)\n", "", EXAMPLES[0], flags=re.DOTALL)
    library.write_text(forgetful)
    match = re.search(r"the test reports: `(.*?)…`", PAGE)
    assert match
    problems: list[str] = []
    monkeypatch.setitem(names, "problems_of", lambda case: problems.extend(problems_of(case)) or problems)
    with pytest.raises(AssertionError):
        names["test_contacts"]()
    assert problems[0].startswith(match[1])


def bulk_api() -> AnswerFunction:
    """Return an API that accepts batches and jobs of contacts. A job is done at its second poll."""
    request_counts: collections.Counter[str] = collections.Counter()

    def answer(request: Request, state: State) -> Answer | None:
        if request.method == "GET":
            request_counts[request.path] += 1
            return Answer(200, {"status": "running" if request_counts[request.path] < 2 else "complete"})
        if not isinstance(request.body, list):
            return None
        for contact in request.body:
            assert isinstance(contact, dict)
            path = f"/contacts/{contact['id']}"
            if contact.get("action") == "delete":
                state.pop(path, None)
            else:
                state[path] = contact
        return Answer(200, {"id": f"J-{len(request_counts) + 1}"})

    return answer


@pytest.mark.parametrize("mode", ["atomic", "async"])
def test_the_examples_of_batch_modes_pass_their_checks(write_library: Callable[..., Path], mode: str) -> None:
    """Batches and jobs meet the same faults as single rows."""
    (example,) = [text for text in EXAMPLES if f'"batch_mode": "{mode}"' in text]
    ada, ben, cyn = ({"contact_id": f"c{number}", "name": f"n{number}"} for number in range(3))
    case = PushCase(
        library=write_library(example=example),
        kind="tracked" if mode == "atomic" else "merge",
        key=["contact_id"],
        versions=[[ada, ben], [{**ada, "name": "Ada"}, cyn]],
        answer=bulk_api(),
    )
    assert [] == problems_of(case)


def batches_of_contacts(request: Request, state: State) -> Answer | None:
    """Upsert and archive contacts in batches."""
    if not request.path.startswith("/v3/contacts/batch/"):
        return None
    assert isinstance(request.body, dict)
    for contact in request.body["inputs"]:
        if request.path.endswith("/archive"):
            state.pop(f"/contacts/{contact}", None)
        else:
            state[f"/contacts/{contact['contact_id']}"] = contact
    return Answer(200, {})


def test_the_example_of_a_mirror_in_batches_passes_its_checks(write_library: Callable[..., Path]) -> None:
    """One batch inserts, updates and deletes contacts."""
    (example,) = [text for text in EXAMPLES if "/contacts/batch/archive" in text]
    ada, ben, cyn = ({"contact_id": f"c{number}", "name": f"n{number}"} for number in range(3))
    case = PushCase(
        library=write_library(example=example),
        kind="tracked",
        key=["contact_id"],
        versions=[[ada, ben], [{**ada, "name": "Ada"}, cyn]],
        answer=batches_of_contacts,
    )
    assert [] == problems_of(case)
