"""The push functions of the example and of a new project, in the conformance kit that users get too."""

import subprocess
import sys
from pathlib import Path

import pytest

from ondatra_dagster.testing import Answer, PushCase, Request, State, problems_of

ROOT = Path(__file__).parents[1]
LIB = ROOT / "lib"


def customer(number: int, **other: object) -> dict[str, object]:
    return {
        "customer_id": f"C-{number}",
        "name": f"Customer {number}",
        "email": f"c{number}@example.com",
        "country": "DK",
        "orders": number,
        "spent": "19.90",
        "last_ordered_on": "2026-01-02",
        **other,
    }


def line(invoice: int, number: int, **other: object) -> dict[str, object]:
    return {
        "invoice_id": f"I-{invoice}",
        "customer_id": "C-1",
        "issued_on": "2026-01-02",
        "line_no": number,
        "product": f"thing {number}",
        "quantity": 1,
        "unit_price": "9.90",
        **other,
    }


def product(number: int, **other: object) -> dict[str, object]:
    return {"product_id": f"P-{number}", "name": f"thing {number}", "category": "things", "unit_price": "9.90", **other}


def step(order: int, status: str) -> dict[str, object]:
    return {"order_id": f"5000{order}", "customer_id": "C-1", "status": status}


def imports(request: Request, state: State) -> Answer | None:
    """Answer as an API with jobs for many entries, each complete at its first poll; a job's id contains its keys."""
    if request.parts[:2] != ("crm", "imports"):
        return None
    if request.method == "POST":
        for operation in request.body["operations"]:
            state["/crm/timeline/" + operation["upsert"]["entry_id"]] = operation["upsert"]
        return Answer(202, {"id": " ".join(each["key"] for each in request.body["operations"])})
    keys = request.parts[2].split()
    return Answer(200, {"status": "complete", "results": [[key, "ok"] for key in keys]})


CASES = {
    "crm_push": PushCase(
        library=LIB / "crm_push.star",
        kind="merge",
        key=["customer_id"],
        types={"spent": "decimal(18,2)", "last_ordered_on": "date"},
        versions=[
            [customer(1), customer(2)],
            [customer(1, orders=9, spent="80.00"), customer(2), customer(3, last_ordered_on=None)],
        ],
    ),
    "erp_push": PushCase(
        library=LIB / "erp_push.star",
        kind="tracked",
        key=["invoice_id"],
        types={"unit_price": "decimal(10,2)", "issued_on": "date"},
        versions=[
            [line(1, 1), line(1, 2), line(2, 1)],
            [line(1, 1), line(1, 2, quantity=3), line(3, 1)],
            [line(1, 1), line(3, 1), line(2, 1)],
        ],
    ),
    "prices_push": PushCase(
        library=LIB / "prices_push.star",
        kind="table",
        versions=[[product(1), product(2)], [product(1, unit_price="10.90"), product(3)], [product(3)]],
    ),
    "timeline_push": PushCase(
        library=LIB / "timeline_push.star",
        kind="append",
        versions=[[step(1, "open"), step(2, "open")], [step(1, "shipped"), step(3, "open")]],
        answer=imports,
        never_null=["order_id", "status"],
    ),
}


@pytest.mark.parametrize("sink", CASES)
def test_a_push_function_of_the_example_keeps_its_contract(sink: str) -> None:
    """Users copy these functions, so they are tested with every change, fault and retry."""
    assert [] == problems_of(CASES[sink])


def test_every_push_function_of_the_example_has_a_case() -> None:
    """A function without a case here would be untested."""
    sinks = {path.stem for path in LIB.glob("*.star") if "def push(" in path.read_text()}
    assert sinks == set(CASES)


def test_the_tests_of_a_new_project_pass() -> None:
    """They run unchanged: imports, cases and command are those that a user has."""
    tests = ROOT / "ondatra_dagster" / "template" / "tests"
    command = [sys.executable, "-m", "pytest", "-q", "-c", "/dev/null", "-p", "no:cacheprovider", str(tests)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert 0 == ended.returncode, ended.stdout
