"""Why rows didn't arrive, for those who only look: each reason once, with how many rows and some keys."""

from typing import NamedTuple

from ondatra_dagster.delivery.queue.states import MIRROR_WEIGHT, WEIGHT
from ondatra_dagster.delivery.queue.tables import IDENTIFIER
from ondatra_dagster.delivery.target import Shape
from ondatra_dagster.store.database import Store
from ondatra_dagster.wording import count

SHOWN_KEYS = 3
WHOLE = "the whole table"  # has no key

DEAD = """
with letter as (
    select {key} as key, coalesce(message, '') as reason, {weight} as units, died_at, id
    from unit where state = 'dead'
), told as (
    select key, reason, sum(units) over (partition by reason) as units,
        row_number() over (partition by reason order by died_at, id) as place
    from letter
)
select reason, units, key from told where place <= :keys order by units desc, reason, place limit :limit
"""


class Reason(NamedTuple):
    """What was said of so many units, and the first keys among them: one more than is shown."""

    message: str
    units: int
    keys: tuple[str, ...]

    def describe_units(self, noun: str) -> str:
        """b2; 4 rows (a1, b2, c3 and others)."""
        return self.told_keys if self.units == 1 else f"{count(self.units, noun)} ({self.told_keys})"

    @property
    def told_keys(self) -> str:
        """a1, b2, c3 and others."""
        others = " and others" if len(self.keys) > SHOWN_KEYS else ""
        return ", ".join(key or WHOLE for key in self.keys[:SHOWN_KEYS]) + others


def dead_reasons(store: Store, shape: Shape, *, limit: int) -> tuple[Reason, ...]:
    """Of the dead letters, the most frequent first."""
    kept = SHOWN_KEYS + 1
    weight = MIRROR_WEIGHT if shape is Shape.MIRROR else WEIGHT
    dead = DEAD.format(key=IDENTIFIER, weight=weight)
    keys: dict[tuple[str, int], list[str]] = {}
    for reason, units, key in store.rows(dead, {"keys": kept, "limit": limit * kept}):
        keys.setdefault((str(reason), int(units)), []).append(str(key))
    return tuple(Reason(*said, tuple(of)) for said, of in list(keys.items())[:limit])
