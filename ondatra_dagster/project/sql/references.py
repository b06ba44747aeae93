"""Where a query names its inputs: Spark is given the user's own text with only those names replaced.

CTEs shadow tables; strings and comments are none. An input keeps the name that its columns are qualified
with: it gets an alias where the query gives it none, and `mart.customers.id` becomes a column of that alias.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from sqlglot import exp

from ondatra_dagster.project.inputs.sources import Names, UnknownInputError
from ondatra_dagster.project.model import Edit, FileInput, Input, Model, Reference
from ondatra_dagster.project.sql.aliases import Aliases, choose_aliases
from ondatra_dagster.project.sql.query import Query


class Missing(NamedTuple):
    """A name in the query that can't be read."""

    line: int  # within the query
    what: str
    remedy: str


class Found(NamedTuple):
    references: tuple[Reference, ...]  # in the order of the text
    lines: tuple[tuple[Input, int], ...]  # each input once, with the line that names it first
    missing: tuple[Missing, ...]

    @property
    def inputs(self) -> tuple[Input, ...]:
        return tuple(found for found, _ in self.lines)


class _Use(NamedTuple):
    """A table in the tree, and what it stands for."""

    table: exp.Table
    parts: tuple[exp.Identifier, ...]
    input: Input

    @property
    def start(self) -> int:
        return int(self.parts[0].meta["start"])

    @property
    def end(self) -> int:
        return int(self.parts[-1].meta["end"]) + 1


def find_references(query: Query, names: Names) -> Found:
    """Every input of the query and each place where it stands."""
    uses: list[_Use] = []
    missing: list[Missing] = []
    nodes = list(query.tree.walk())
    for node in nodes:
        if isinstance(node, exp.Table):
            _sort_out(node, query, names, uses, missing)
    uses.sort(key=lambda use: use.start)
    aliases = choose_aliases(nodes, {id(use.table): use.parts for use in uses if _wants_alias(use, query)})
    by_table = {id(use.table): use for use in uses}
    references = [_of_table(use, aliases, query) for use in uses]
    for qualifier in aliases.qualifiers(nodes):
        found = by_table[qualifier.table].input
        references.append(
            Reference(
                start=qualifier.start,
                end=qualifier.end,
                input=found,
                alias=aliases.by_table[qualifier.table],
                is_qualifier=True,
            )
        )
    lines: dict[Input, int] = {}
    for use in uses:
        lines.setdefault(use.input, use.parts[0].meta["line"])
    return Found(
        references=tuple(sorted(references, key=lambda reference: reference.start)),
        lines=tuple(lines.items()),
        missing=tuple(missing),
    )


def spark_text(model: Model, views: Mapping[str, str], *, last_value: str | None = None) -> str:
    """The model's query as Spark gets it; `views` is by Input.name, {{ last_value }} becomes a literal."""
    filled = [Edit(start, end, last_value or "NULL") for start, end in model.last_values]
    return rewrite(model.sql, model.references, views, [*model.edits, *filled])


def rewrite(
    sql: str, references: Sequence[Reference], views: Mapping[str, str], edits: Sequence[Edit]
) -> str:
    """The query with each input's name replaced by that of its view, and with the edits of its dialect."""
    named = [Edit(each.start, each.end, _replacement(sql, each, views)) for each in references]
    pieces: list[str] = []
    position = 0
    for edit in sorted([*named, *edits], key=lambda edit: (edit.start, edit.end)):
        pieces += [sql[position : edit.start], edit.text]
        position = edit.end
    return "".join((*pieces, sql[position:]))


def quoted(name: str) -> str:
    """A name as Spark takes it, whatever is in it."""
    return "`" + name.replace("`", "``") + "`"


def _replacement(sql: str, reference: Reference, views: Mapping[str, str]) -> str:
    if reference.is_qualifier and reference.alias:
        return quoted(reference.alias)
    view = quoted(views[reference.input.name])
    sample = sql[reference.name_end : reference.end] if reference.name_end else ""
    return f"{view}{sample} AS {quoted(reference.alias)}" if reference.alias else f"{view}{sample}"


def _sort_out(table: exp.Table, query: Query, names: Names, uses: list[_Use], missing: list[Missing]) -> None:
    """Find what a table in the tree is: an input, a CTE, a function, or something that nothing makes."""
    parts = tuple(part for part in table.parts if isinstance(part, exp.Identifier))
    if len(parts) < len(table.parts):  # a table function: range(10)
        if table.this.name.casefold() == "identifier":
            line = table.this.meta.get("line", 1)
            missing.append(
                Missing(line, "IDENTIFIER() hides what is read", "write the table's name as it is")
            )
        return
    if len(parts) == 1 and _is_cte(table, parts[0].name):
        return
    line = parts[0].meta["line"]
    if table.args.get("version") or table.args.get("when"):
        missing.append(Missing(line, "an input is read as it is now", "remove VERSION or TIMESTAMP AS OF"))
    options = query.clauses.options.get(parts[-1].meta["end"] + 1)
    try:
        found = names.find([part.name for part in parts], options.values if options else ())
    except UnknownInputError as unknown:
        missing.append(Missing(line, unknown.what, unknown.remedy))
        return
    uses.append(_Use(table, parts, found))


def _is_cte(table: exp.Table, name: str) -> bool:
    """Whether a WITH around the table gives that name; within it only those before, but for RECURSIVE."""
    node: exp.Expr | None = table.parent
    within: exp.Expr | None = None
    while node is not None:
        within = node if isinstance(node, exp.CTE) else within
        clause = node.args.get("with_")
        if clause and name.casefold() in _names_before(clause, within):
            return True
        node = node.parent
    return False


def _names_before(clause: exp.With, within: exp.Expr | None) -> Iterator[str]:
    for cte in clause.expressions:
        if cte is not within or clause.recursive:
            yield cte.alias.casefold()
        if cte is within:
            return


def _wants_alias(use: _Use, query: Query) -> bool:
    """Whether columns may be qualified with the input's name: a file has none, TABLE a.b no columns."""
    if use.table.alias or isinstance(use.input, FileInput):
        return False
    return use.start not in query.clauses.table_queries


def _of_table(use: _Use, aliases: Aliases, query: Query) -> Reference:
    options = query.clauses.options.get(use.end)
    after_options = options.end if options else use.end
    alias = aliases.by_table.get(id(use.table))
    sample_end = query.clauses.sample_ends.get(after_options) if alias else None
    return Reference(
        start=use.start,
        end=sample_end or after_options,
        name_end=after_options if sample_end else None,
        input=use.input,
        alias=alias,
    )
