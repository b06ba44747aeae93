"""The conformance kit for push functions: no problem for a correct function, and one sentence for each mistake."""

from pathlib import Path

import pytest

from ondatra_dagster.testing import Answer, PushCase, Request, State, problems_of, refusal

GOOD = """
API = {"base_url": "https://api.example.com/v3", "auth": {"env": "KEY"}, "push": {"batch_size": 50}}

def push(rows):
    return {str(row["__ondatra_rowid"]) + ":" + row["__ondatra_change_type"]: send(row) for row in rows}

def send(row):
    change = row["__ondatra_change_type"]
    contact = {name: value for name, value in row.items() if not name.startswith("__ondatra_")}
    path = "/contacts/" + url_quote(row["id"])
    if change == "insert":
        answer = http.post("/contacts", json=contact)
        if answer.status_code == 409:
            answer = http.patch(path, json=contact)
    elif change == "update_postimage":
        answer = http.patch(path, json=contact)
    elif change == "delete":
        answer = http.delete(path)
        if answer.status_code == 404:
            return "ok"
    else:
        return "ok"
    if answer.status_code in [400, 422]:
        return "reject: " + answer.text
    return "ok" if answer.ok else "error: " + answer.text
"""
ADA, BEN, CYN = ({"id": id_, "name": name} for id_, name in (("a1", "Ada"), ("b2", "Ben"), ("c3", "Cyn")))
MERGE = [[ADA, BEN], [{**ADA, "name": "Ann"}, BEN, CYN]]
PARTLY = """    if answer.status_code in [400, 422]:"""


def case(tmp_path: Path, text: str, **told: object) -> PushCase:
    library = tmp_path / "lib" / "contacts.star"
    library.parent.mkdir()
    library.write_text(text)
    return PushCase(**{"library": library, "kind": "merge", "key": ["id"], "versions": MERGE, **told})  # type: ignore[arg-type]


def edited(*edits: tuple[str, str]) -> str:
    text = GOOD
    for old, new in edits:
        assert old in text, old
        text = text.replace(old, new)
    return text


def test_a_correct_function_has_no_problems(tmp_path: Path) -> None:
    """It is tried with all operations and all faults, for kind merge and for a table from which rows are removed."""
    assert [] == problems_of(case(tmp_path, GOOD))
    going = PushCase(library=tmp_path / "lib" / "contacts.star", kind="table", versions=[[ADA, BEN], [BEN, CYN]])
    assert [] == problems_of(PushCase(**{**fields(going), "id_fields": ["id"]}))  # type: ignore[arg-type]


def fields(of: PushCase) -> dict[str, object]:
    return {name: getattr(of, name) for name in of.__dataclass_fields__}


WRONG = {
    "a row without a status": (
        (
            """        return "ok"
    if""",
            """        return None
    if""",
        ),
        "the update_preimage of a1: push() returned 'None' for this row",
    ),
    "a failed call that counts": (
        ('return "ok" if answer.ok else "error: " + answer.text', 'return "ok"'),
        "the insert of a1 is ok though its calls were answered 408: it may succeed later, so it is an error",
    ),
    "a failure for now that is for good": (
        ("[400, 422]", "[400, 422, 503]"),
        "is reject though its calls were answered 503: it may succeed later",
    ),
    "a wrong key that is the row's fault": (
        ("[400, 422]", "[400, 401, 422]"),
        "is reject though its calls were answered 401: it is the key that is wrong",
    ),
    "an insert that was done already": (
        ("        if answer.status_code == 409:\n            answer = http.patch(path, json=contact)\n", ""),
        "when POST /v3/contacts is done, but its answer is lost: a1 is retried until it is given up",
    ),
    "an address that a key breaks": (
        ('url_quote(row["id"])', 'row["id"]'),
        "a id of 'a/b c?d#e&f é' ends at another address",
    ),
    "a null that nobody thought of": (
        ("    path = ", '    contact["name"] = row["name"].upper()\n    path = '),
        "where name is null, the insert of a1 fails: lib/contacts.star:10:",
    ),
    "a body with the time in it": (
        ("    path = ", '    contact["at"] = time.unix()\n    path = '),
        "when it runs again after a crash, the batch calls POST /v3/contacts a second time",
    ),
    "updates that are forgotten": (
        ('    elif change == "update_postimage":\n        answer = http.patch(path, json=contact)\n', ""),
        "the API doesn't hold what the table has: /v3/contacts/a1 is",
    ),
    "a status for a row that isn't there": (
        ("for row in rows}", 'for row in rows} | {"9:insert": "ok"}'),
        "push() returned a status for 1 row that the batch doesn't have: '9:insert'",
    ),
    "a file that can't be read": (("def send(row):", "def send(row:"), "lib/contacts.star:7:"),
}


@pytest.mark.parametrize(("edit", "sentence"), WRONG.values(), ids=WRONG)
def test_a_mistake_is_reported(tmp_path: Path, edit: tuple[str, str], sentence: str) -> None:
    """The sentence has the row, the call and what to write instead."""
    problems = problems_of(case(tmp_path, edited(edit)))
    assert [one for one in problems if sentence in one], problems


FINALIZE = """
def finalize(succeeded, failed):
    answer = http.post("/done", json={"rows": succeeded})
"""


@pytest.mark.parametrize(
    ("ending", "sentence"),
    [
        ("", "finalize() ends normally though its call was answered 503"),
        ("    fail('no')", "finalize() fails, though the API did nothing wrong: lib/contacts.star:29: no"),
        ("    if not answer.ok:\n        fail(answer.text)", None),
    ],
)
def test_finalize_is_tried_too(tmp_path: Path, ending: str, sentence: str | None) -> None:
    """If finalize() hides its failure, the API never receives its call."""
    problems = problems_of(case(tmp_path, GOOD + FINALIZE + ending))
    assert (not problems) if sentence is None else [one for one in problems if sentence in one], problems


def test_forgotten_deletes_are_reported(tmp_path: Path) -> None:
    """Users notice an undeleted contact last, and complain about it most."""
    text = edited(("        answer = http.delete(path)\n        if answer.status_code == 404:\n    ", ""))
    problems = problems_of(case(tmp_path, text, kind="tracked", versions=[[ADA, BEN], [BEN]]))
    assert "after 2 versions the API doesn't hold what the table has: /v3/contacts/a1 is still there" in problems[0]


def test_a_delete_of_a_missing_row_has_to_succeed(tmp_path: Path) -> None:
    """The first attempt deleted the row, but its answer was lost. The second attempt finds nothing."""
    text = edited(('        if answer.status_code == 404:\n            return "ok"\n', ""))
    problems = problems_of(case(tmp_path, text, kind="tracked", versions=[[ADA, BEN], [BEN]]))
    assert (
        "when DELETE /v3/contacts/a1 is done, but its answer is lost: a1 is retried until it is given up" in problems[0]
    )


def test_a_repeated_insert_without_an_id_is_a_problem(tmp_path: Path) -> None:
    """The API of this case ignores idempotency keys, so the row would arrive twice."""
    text = """
API = {"base_url": "https://api.example.com"}
def push(rows):
    return {str(r["__ondatra_rowid"]) + ":insert": send(r) for r in rows}
def send(row):
    answer = http.post("/posts", json={"text": row["name"]})
    return "ok" if answer.ok else "error: " + answer.text
"""
    versions = [[ADA], [ADA, BEN]]
    posts = case(tmp_path, text, kind="append", key=[], versions=versions)
    (fault,) = {problem.partition(":")[0] for problem in problems_of(posts)[:1]}
    assert "when POST /posts is done, but its answer is lost" == fault


SHEET = """
API = {"base_url": "https://sheets.example.com", "push": {"batch_size": 0}}
def push(rows):
    lines = [{"id": row["id"], "name": row["name"]} for row in rows]
    answer = http.put("/sheets/contacts", json={"lines": lines})
    status = "ok" if answer.ok else "error: " + answer.text
    return {str(row["__ondatra_rowid"]) + ":insert": status for row in rows}
"""
ARCHIVE = """
API = {"base_url": "https://archive.example.com"}
def push(rows):
    return {str(r["__ondatra_rowid"]) + ":" + r["__ondatra_change_type"]: send(r) for r in rows}
def send(row):
    if row["__ondatra_change_type"] == "update_preimage":
        return "ok"
    answer = http.put("/versions/" + str(row["__ondatra_rowid"]), json={"to": row["valid_to_snapshot"]})
    return "ok" if answer.ok else "error: " + answer.text
"""
DAYS = """
API = {"base_url": "https://days.example.com"}
def push(rows):
    return {str(r["__ondatra_rowid"]) + ":" + r["__ondatra_change_type"]: send(r) for r in rows}
def send(row):
    path = "/rows/" + str(row["__ondatra_rowid"])
    if row["__ondatra_change_type"] == "delete":
        answer = http.delete(path)
        return "ok" if answer.ok or answer.status_code == 404 else "error: " + answer.text
    answer = http.put(path, json={"id": row["id"]})
    return "ok" if answer.ok else "error: " + answer.text
"""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (SHEET, {"kind": "table", "key": []}),
        (ARCHIVE, {"kind": "scd2"}),
        (DAYS, {"kind": "partition", "key": ["name"], "is_mirror": False}),
    ],
    ids=["a whole table", "versions", "partitions"],
)
def test_every_kind_can_be_tried(tmp_path: Path, text: str, told: dict[str, object]) -> None:
    """Each kind sends rows in its own order, and with the columns of its change feed."""
    versions = [[ADA, BEN], [{**ADA, "name": "Ann"}, CYN], [CYN]]
    assert [] == problems_of(case(tmp_path, text, versions=versions, **told))


def of_the_api(request: Request, state: State) -> Answer | None:
    """Return the answer of an API with additional rules: it refuses contacts without a name, and has a search."""
    if request.method == "GET":
        return Answer(200, [path for path in state if request.params["id"] in path])
    if isinstance(request.body, dict) and request.body.get("name") is None:
        return refusal(422, "a contact has a name")
    return None


def test_a_fake_api_can_have_additional_rules(tmp_path: Path) -> None:
    """A refusal by such a rule isn't a mistake of the function that reports it."""
    text = edited(
        ("        if answer.status_code == 409:", '        if http.get("/contacts", params={"id": row["id"]}).json:')
    )
    assert [] == problems_of(case(tmp_path, text, answer=of_the_api))


@pytest.mark.parametrize(
    ("told", "problem"),
    [
        ({"kind": "merg"}, "'merg' is not a kind"),
        ({"key": []}, "kind merge needs a key"),
        ({"versions": [[]]}, "versions needs rows"),
    ],
)
def test_an_incomplete_case_is_refused(tmp_path: Path, told: dict[str, object], problem: str) -> None:
    """It is refused before anything runs."""
    with pytest.raises(ValueError, match=problem):
        case(tmp_path, GOOD, **told)
