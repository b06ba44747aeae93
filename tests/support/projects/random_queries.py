"""A generator of random queries over three small tables, in SQL that DuckDB reads as Spark does.

Queries choose, join and group rows only by `id`, which no test changes. So a changed value affects only the columns
that depend on it.
"""

import dataclasses
import random
from collections.abc import Mapping, Sequence

TABLES = {"s.a": ("id", "x", "y"), "s.b": ("id", "v", "w"), "t.a": ("id", "x", "z")}
NAMES = ("p", "q", "x", "y", "v", "w", "z")


@dataclasses.dataclass(frozen=True)
class RandomFromItem:
    """An item of a FROM clause."""

    text: str
    name: str
    columns: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class RandomQuery:
    text: str
    columns: tuple[str, ...]  # id comes first


class QueryGenerator:
    """A generator of queries with a given source of random numbers."""

    def __init__(self, chance: random.Random) -> None:
        self.rng = chance

    def write_query(self) -> RandomQuery:
        """Write a whole query, half of the time with a WITH clause."""
        ctes: dict[str, tuple[str, ...]] = {}
        texts: list[str] = []
        for name in self.rng.sample(("c", "d", "a"), self.rng.choice((0, 0, 1, 2))):
            inner = self.write_select(ctes, depth=1)
            columns = inner.columns
            if self.rng.random() < 0.3:
                columns = ("id", *(f"n{place}" for place in range(1, len(columns))))
                texts.append(f"{name}({', '.join(columns)}) as ({inner.text})")
            else:
                texts.append(f"{name} as ({inner.text})")
            ctes[name] = columns
        body = self.write_select(ctes, depth=0)
        if self.rng.random() < 0.25:
            other = self.write_select(ctes, depth=0, width=len(body.columns) - 1)
            body = RandomQuery(f"{body.text} union all {other.text}", body.columns)
        return RandomQuery((f"with {', '.join(texts)} " if texts else "") + body.text, body.columns)

    def write_select(self, ctes: Mapping[str, tuple[str, ...]], *, depth: int, width: int | None = None) -> RandomQuery:
        sources = self.write_from_items(ctes, depth)
        width = width or self.rng.randint(1, 3)
        if len(sources) == 1 and width == len(sources[0].columns) - 1 and self.rng.random() < 0.5:
            star = self.rng.choice(("*", f"{sources[0].name.rpartition('.')[2]}.*"))
            return RandomQuery(f"select {star} from {sources[0].text}", sources[0].columns)
        names = self.rng.sample(NAMES, width)
        is_grouped = self.rng.random() < 0.2
        values = [self.write_group_by(sources) if is_grouped else self.write_expression(sources) for _ in names]
        projections = ", ".join(f"{value} as {name}" for value, name in zip(values, names, strict=True))
        first = sources[0].name
        tail = f" group by {first}.id" if is_grouped else self.write_where(first)
        return RandomQuery(
            f"select {first}.id as id, {projections} from {self.write_join(sources)}{tail}", ("id", *names)
        )

    def write_from_items(self, ctes: Mapping[str, tuple[str, ...]], depth: int) -> list[RandomFromItem]:
        names = self.rng.sample(("l", "r", "a", "m"), 2)
        sources = [self.write_from_item(name, ctes, depth) for name in names[: self.rng.choice((1, 1, 2))]]
        is_clear = len({source.name.rpartition(".")[2] for source in sources}) == len(sources)
        return sources if is_clear else sources[:1]

    def write_from_item(self, name: str, ctes: Mapping[str, tuple[str, ...]], depth: int) -> RandomFromItem:
        if ctes and self.rng.random() < 0.5:
            cte = self.rng.choice(list(ctes))
            if self.rng.random() < 0.4:
                return RandomFromItem(cte, cte, ctes[cte])
            return RandomFromItem(f"{cte} as {name}", name, ctes[cte])
        if depth < 2 and self.rng.random() < 0.3:
            inner = self.write_select(ctes, depth=depth + 1)
            return RandomFromItem(f"({inner.text}) as {name}", name, inner.columns)
        table = self.rng.choice(list(TABLES))
        if self.rng.random() < 0.4:
            return RandomFromItem(table, self.rng.choice((table, table.partition(".")[2])), TABLES[table])
        if self.rng.random() < 0.3:
            columns = ("id", "e1", "e2")
            return RandomFromItem(f"{table} as {name}({', '.join(columns)})", name, columns)
        return RandomFromItem(f"{table} {name}", name, TABLES[table])

    def write_join(self, sources: Sequence[RandomFromItem]) -> str:
        if len(sources) == 1:
            return sources[0].text
        left, right = sources
        on = f"{left.name}.id = {right.name}.id"
        form = self.rng.choice(
            ("{l} join {r} on {on}", "{l} left join {r} on {on}", "{l} join {r} using (id)", "{l} cross join {r}")
        )
        return form.format(l=left.text, r=right.text, on=on)

    def write_where(self, name: str) -> str:
        return self.rng.choice(("", f" where {name}.id > 1", f" where {name}.id in (select id from s.a)"))

    def write_column(self, sources: Sequence[RandomFromItem]) -> str:
        source = self.rng.choice(sources)
        column = self.rng.choice(source.columns[1:])
        is_clear = sum(column in other.columns for other in sources) == 1
        return column if is_clear and self.rng.random() < 0.5 else f"{source.name}.{column}"

    def write_expression(self, sources: Sequence[RandomFromItem]) -> str:
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
        one, other = self.write_column(sources), self.write_column(sources)
        return self.rng.choice(forms).format(one, other, id=f"{sources[0].name}.id")

    def write_group_by(self, sources: Sequence[RandomFromItem]) -> str:
        form = self.rng.choice(("max({0})", "sum({0} + {1})", "count(*)", "max({0}) filter (where {id} > 1)"))
        return form.format(self.write_column(sources), self.write_column(sources), id=f"{sources[0].name}.id")
