"""The rows that every contestant sends: five columns. A row's values depend only on its number.

No value looks like a timestamp, because dlt would parse and format it again. This module imports only the standard
library, because dlt's own Python imports it too.
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
