"""Queries put together at random, of forms that DuckDB reads as Spark does, over three small tables.

Rows are chosen, joined and grouped by `id` alone, which no test changes: so a value that changes can
only show where it flows to.
"""

import dataclasses
import random
from collections.abc import Mapping, Sequence

TABLES = {"s.a": ("id", "x", "y"), "s.b": ("id", "v", "w"), "t.a": ("id", "x", "z")}
NAMES = ("p", "q", "x", "y", "v", "w", "z")


@dataclasses.dataclass(frozen=True)
class Source:
    """Something in a FROM."""

    text: str
    name: str
    columns: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Query:
    text: str
    columns: tuple[str, ...]  # id comes first


class Writer:
    """Writes queries with a given chance."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance

    def query(self) -> Query:
        """A whole query, with names in front of it half of the time."""
        ctes: dict[str, tuple[str, ...]] = {}
        texts: list[str] = []
        for name in self.chance.sample(("c", "d", "a"), self.chance.choice((0, 0, 1, 2))):
            inner = self.select(ctes, depth=1)
            columns = inner.columns
            if self.chance.random() < 0.3:
                columns = ("id", *(f"n{place}" for place in range(1, len(columns))))
                texts.append(f"{name}({', '.join(columns)}) as ({inner.text})")
            else:
                texts.append(f"{name} as ({inner.text})")
            ctes[name] = columns
        body = self.select(ctes, depth=0)
        if self.chance.random() < 0.25:
            other = self.select(ctes, depth=0, width=len(body.columns) - 1)
            body = Query(f"{body.text} union all {other.text}", body.columns)
        return Query((f"with {', '.join(texts)} " if texts else "") + body.text, body.columns)

    def select(self, ctes: Mapping[str, tuple[str, ...]], *, depth: int, width: int | None = None) -> Query:
        sources = self.sources(ctes, depth)
        width = width or self.chance.randint(1, 3)
        if len(sources) == 1 and width == len(sources[0].columns) - 1 and self.chance.random() < 0.5:
            star = self.chance.choice(("*", f"{sources[0].name.rpartition('.')[2]}.*"))
            return Query(f"select {star} from {sources[0].text}", sources[0].columns)
        names = self.chance.sample(NAMES, width)
        is_grouped = self.chance.random() < 0.2
        values = [self.grouped(sources) if is_grouped else self.value(sources) for _ in names]
        projections = ", ".join(f"{value} as {name}" for value, name in zip(values, names, strict=True))
        first = sources[0].name
        tail = f" group by {first}.id" if is_grouped else self.where(first)
        return Query(
            f"select {first}.id as id, {projections} from {self.joined(sources)}{tail}", ("id", *names)
        )

    def sources(self, ctes: Mapping[str, tuple[str, ...]], depth: int) -> list[Source]:
        names = self.chance.sample(("l", "r", "a", "m"), 2)
        found = [self.source(name, ctes, depth) for name in names[: self.chance.choice((1, 1, 2))]]
        is_clear = len({source.name.rpartition(".")[2] for source in found}) == len(found)
        return found if is_clear else found[:1]

    def source(self, name: str, ctes: Mapping[str, tuple[str, ...]], depth: int) -> Source:
        if ctes and self.chance.random() < 0.5:
            cte = self.chance.choice(list(ctes))
            if self.chance.random() < 0.4:
                return Source(cte, cte, ctes[cte])
            return Source(f"{cte} as {name}", name, ctes[cte])
        if depth < 2 and self.chance.random() < 0.3:
            inner = self.select(ctes, depth=depth + 1)
            return Source(f"({inner.text}) as {name}", name, inner.columns)
        table = self.chance.choice(list(TABLES))
        if self.chance.random() < 0.4:
            return Source(table, self.chance.choice((table, table.partition(".")[2])), TABLES[table])
        if self.chance.random() < 0.3:
            columns = ("id", "e1", "e2")
            return Source(f"{table} as {name}({', '.join(columns)})", name, columns)
        return Source(f"{table} {name}", name, TABLES[table])

    def joined(self, sources: Sequence[Source]) -> str:
        if len(sources) == 1:
            return sources[0].text
        left, right = sources
        on = f"{left.name}.id = {right.name}.id"
        form = self.chance.choice(
            (
                "{l} join {r} on {on}",
                "{l} left join {r} on {on}",
                "{l} join {r} using (id)",
                "{l} cross join {r}",
            )
        )
        return form.format(l=left.text, r=right.text, on=on)

    def where(self, name: str) -> str:
        return self.chance.choice(("", f" where {name}.id > 1", f" where {name}.id in (select id from s.a)"))

    def column(self, sources: Sequence[Source]) -> str:
        source = self.chance.choice(sources)
        column = self.chance.choice(source.columns[1:])
        is_clear = sum(column in other.columns for other in sources) == 1
        return column if is_clear and self.chance.random() < 0.5 else f"{source.name}.{column}"

    def value(self, sources: Sequence[Source]) -> str:
        forms = (
            "{0}",
            "{0}",
            "{0} + {1}",
            "coalesce({0}, {1})",
            "case when {id} > 1 then {0} else {1} end",
            "sum({0}) over (partition by {id})",
            "sum({0}) over (order by {1})",
            "(select max(v) from s.b where s.b.id = {id})",
            "(select max(t.a.z) from t.a where t.a.id = {id}) + {0}",
            "(select min(s.b.w) from s.b) + {0}",
            "7",
            "{id}",
        )
        one, other = self.column(sources), self.column(sources)
        return self.chance.choice(forms).format(one, other, id=f"{sources[0].name}.id")

    def grouped(self, sources: Sequence[Source]) -> str:
        form = self.chance.choice(
            ("max({0})", "sum({0} + {1})", "count(*)", "max({0}) filter (where {id} > 1)")
        )
        return form.format(self.column(sources), self.column(sources), id=f"{sources[0].name}.id")
