"""Each push function of the example, and of a new project, through the conformance kit that users get too."""

import subprocess
import sys
from pathlib import Path

import pytest

from ondatra_dagster.testing import PushCase, problems_of

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
}


@pytest.mark.parametrize("sink", CASES)
def test_a_push_function_of_the_example_keeps_its_contract(sink: str) -> None:
    """They are what people copy: through every change, fault and retry."""
    assert [] == problems_of(CASES[sink])


def test_every_push_function_of_the_example_has_a_case() -> None:
    """One that was forgotten here would be one that nobody has tried."""
    sinks = {path.stem for path in LIB.glob("*.star") if "def push(" in path.read_text()}
    assert sinks == set(CASES)


def test_the_tests_of_a_new_project_pass() -> None:
    """Just as they are laid down: where the kit is, what a case says, how it is run."""
    tests = ROOT / "ondatra_dagster" / "template" / "tests"
    command = [sys.executable, "-m", "pytest", "-q", "-c", "/dev/null", "-p", "no:cacheprovider", str(tests)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert 0 == ended.returncode, ended.stdout
