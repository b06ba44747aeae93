"""The rows that every contestant sends: five columns, the same values for the same number.

None of them looks like a moment, which dlt would take apart and put together again. Nothing but the standard
library here: dlt's own Python reads this too.
"""

from collections.abc import Iterator
from typing import Any

COLUMNS = ("id", "email", "name", "country", "orders")
COUNTRIES = ("DE", "FR", "SE", "US", "JP")


def build_row(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "email": f"customer{number}@example.com",
        "name": f"Ada Lovelace {number}",
        "country": COUNTRIES[number % len(COUNTRIES)],
        "orders": number % 60,
    }


def yield_batches(rows: int, size: int) -> Iterator[list[dict[str, Any]]]:
    for start in range(0, rows, size):
        yield [build_row(number) for number in range(start, min(start + size, rows))]
