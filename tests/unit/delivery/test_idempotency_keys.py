"""Which Idempotency-Key a row goes out under when the try before, in an earlier run, got no answer."""

from pathlib import Path

import pytest
from support.contact_syncs import ContactSync

from ondatra_dagster.testing.demo_api import DemoApi

CREATE = """
def push(rows):
    return {str(r["__ondatra_rowid"]) + ":" + r["__ondatra_change_type"]: create(r) for r in rows}

def create(row):
    contact = {"customer_id": row["customer_id"], "email": row["email"]}
    answer = http.post("/crm/contacts", json=contact, headers=HEADERS)
    return "ok" if answer.ok else "error: " + answer.text
"""
OWN = '{"Idempotency-Key": sha256(str(row["__ondatra_rowid"]) + json.encode(contact))}'


@pytest.mark.parametrize(("headers", "is_same", "told"), [("{}", False, 409), (OWN, True, 201)])
def test_a_row_that_goes_again_in_a_later_run_keeps_only_a_key_of_its_own(
    api: DemoApi, tmp_path: Path, headers: str, *, is_same: bool, told: int
) -> None:
    """It may stand in another batch by then, with other values: our key tells tries of one batch apart."""
    sync = ContactSync(tmp_path, api, CREATE.replace("HEADERS", headers), {})
    sync.write(c1="1@example.com")
    api.fail(method="POST", drop="after")
    sync.run()
    assert 1 == sync.standing().waiting
    sync.run_later(3600)
    first, second = api.calls
    assert (is_same, told) == (first.idempotency_key == second.idempotency_key, second.status)
    assert is_same == second.is_repeat
