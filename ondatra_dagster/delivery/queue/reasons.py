"""Why rows didn't arrive, for those who only look: each reason once, with how many rows and some keys."""

from typing import NamedTuple

from ondatra_dagster.delivery.queue.tables import GROUP_ROWS, IDENTIFIER
from ondatra_dagster.delivery.target import Shape
from ondatra_dagster.store.database import Store
from ondatra_dagster.wording import count

SHOWN_KEYS = 3

ROWS_OF = {
    Shape.ROW: "1",
    Shape.VERSION: "1",
    Shape.GROUP: GROUP_ROWS,
    Shape.MIRROR: "rows",
}
DEAD = """
with letter as (
    select {key} as key, coalesce(message, '') as reason, {rows} as rows, died_at, id
    from unit where state = 'dead'
), told as (
    select key, reason, sum(rows) over (partition by reason) as rows,
        row_number() over (partition by reason order by died_at, id) as place
    from letter
)
select reason, rows, key from told where place <= :keys order by rows desc, reason, place limit :limit
"""


class Reason(NamedTuple):
    """What was said of so many rows, and the first keys among them: one more than is shown."""

    message: str
    rows: int
    keys: tuple[str, ...]

    @property
    def of(self) -> str:
        """Whose reason it is: b2; 3 rows of a1, b2."""
        return self.told_keys if self.rows == 1 else f"{count(self.rows, 'row')} of {self.told_keys}"

    @property
    def told_keys(self) -> str:
        """a1, b2, c3 and others."""
        others = " and others" if len(self.keys) > SHOWN_KEYS else ""
        return ", ".join(self.keys[:SHOWN_KEYS]) + others


def dead_reasons(store: Store, shape: Shape, *, limit: int) -> tuple[Reason, ...]:
    """Of the dead letters, the most frequent first."""
    kept = SHOWN_KEYS + 1
    dead = DEAD.format(key=IDENTIFIER, rows=ROWS_OF[shape])
    keys: dict[tuple[str, int], list[str]] = {}
    for reason, rows, key in store.rows(dead, {"keys": kept, "limit": limit * kept}):
        keys.setdefault((str(reason), int(rows)), []).append(str(key))
    return tuple(Reason(*said, tuple(of)) for said, of in list(keys.items())[:limit])
