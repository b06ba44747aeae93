"""The places where a query names its inputs. Spark gets the user's own text with only these names replaced.

A CTE can hide a table of its name. Names in strings and comments don't count. A column may be qualified with an input's
name: the input gets an alias if it has none, and `mart.customers.id` becomes a column of this alias.
"""

import collections
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from sqlglot import exp

from ondatra_dagster.project.inputs.input_resolution import InputNames, UnknownInputError
from ondatra_dagster.project.model import FileInput, Input, Model, Reference, TextEdit
from ondatra_dagster.project.sql.dialect_translation import apply_edits
from ondatra_dagster.project.sql.query_parser import ParsedQuery
from ondatra_dagster.project.sql.tokenizer import QueryError


class InputReferences(NamedTuple):
    references: tuple[Reference, ...]  # in the order of the text
    lines: tuple[tuple[Input, int], ...]  # each input once, with the first line of the query that names it
    unreadable_inputs: tuple[QueryError, ...]

    @property
    def inputs(self) -> tuple[Input, ...]:
        return tuple(input_ for input_, _ in self.lines)


class _InputUse(NamedTuple):
    """A use of an input: a table in the tree, and the input that the table's name means."""

    table: exp.Table
    parts: tuple[exp.Identifier, ...]
    input: Input

    @property
    def start(self) -> int:
        return int(self.parts[0].meta["start"])

    @property
    def end(self) -> int:
        return int(self.parts[-1].meta["end"]) + 1


def find_references(query: ParsedQuery, names: InputNames) -> InputReferences:
    """Return the inputs of the query, and every place where the query names one."""
    uses: list[_InputUse] = []
    errors: list[QueryError] = []
    nodes = list(query.tree.walk())
    for node in nodes:
        if isinstance(node, exp.Table):
            _classify_table(node, query, names, uses, errors)
    uses.sort(key=lambda use: use.start)
    aliases = choose_aliases(nodes, {id(use.table): use.parts for use in uses if _needs_alias(use, query)})
    uses_by_table = {id(use.table): use for use in uses}
    references = [_build_reference(use, aliases, query) for use in uses]
    for qualifier in aliases.find_qualifiers(nodes):
        input_ = uses_by_table[qualifier.table].input
        references.append(
            Reference(
                start=qualifier.start,
                end=qualifier.end,
                input=input_,
                alias=aliases.by_table[qualifier.table],
                is_qualifier=True,
            )
        )
    lines: dict[Input, int] = {}
    for use in uses:
        lines.setdefault(use.input, use.parts[0].meta["line"])
    return InputReferences(
        references=tuple(sorted(references, key=lambda reference: reference.start)),
        lines=tuple(lines.items()),
        unreadable_inputs=tuple(errors),
    )


def render_spark_query(model: Model, views: Mapping[str, str], *, last_value: str | None = None) -> str:
    """Return the model's query for Spark.

    `views` maps Input.name to the name of a view. {{ last_value }} is replaced by the literal in `last_value`.
    """
    value_edits = [TextEdit(start, end, last_value or "NULL") for start, end in model.last_values]
    return replace_names(model.sql, model.references, views, [*model.edits, *value_edits])


def replace_names(
    sql: str, references: Sequence[Reference], views: Mapping[str, str], edits: Sequence[TextEdit]
) -> str:
    """Return the query with each input's name replaced by that of its view, and the other edits applied."""
    name_edits = [
        TextEdit(reference.start, reference.end, _replacement_text(sql, reference, views)) for reference in references
    ]
    return apply_edits(sql, sorted([*name_edits, *edits], key=lambda edit: (edit.start, edit.end)))


def quote_name(name: str) -> str:
    """Return a name in backquotes, which may contain any character."""
    return "`" + name.replace("`", "``") + "`"


def _replacement_text(sql: str, reference: Reference, views: Mapping[str, str]) -> str:
    if reference.is_qualifier and reference.alias:
        return quote_name(reference.alias)
    view = quote_name(views[reference.input.name])
    sample = sql[reference.name_end : reference.end] if reference.name_end else ""
    return f"{view}{sample} AS {quote_name(reference.alias)}" if reference.alias else f"{view}{sample}"


def _classify_table(
    table: exp.Table, query: ParsedQuery, names: InputNames, uses: list[_InputUse], errors: list[QueryError]
) -> None:
    """Add a table of the tree to `uses` if it is an input, or to `errors` if no model, file or source has its name.

    CTEs and functions are skipped.
    """
    parts = tuple(part for part in table.parts if isinstance(part, exp.Identifier))
    if len(parts) < len(table.parts):  # a table function, such as range(10)
        if table.this.name.casefold() == "identifier":
            line = table.this.meta.get("line", 1)
            errors.append(QueryError(line, "IDENTIFIER() hides what is read", "write the table's name itself"))
        return
    if len(parts) == 1 and _is_cte(table, parts[0].name):
        return
    line = parts[0].meta["line"]
    if table.args.get("version") or table.args.get("when"):
        errors.append(QueryError(line, "inputs are read at their newest version", "remove VERSION or TIMESTAMP AS OF"))
    options = query.clauses.options.get(parts[-1].meta["end"] + 1)
    try:
        input_ = names.find_input([part.name for part in parts], options.values if options else ())
    except UnknownInputError as error:
        errors.append(QueryError(line, error.description, error.remedy))
        return
    uses.append(_InputUse(table, parts, input_))


def _is_cte(table: exp.Table, name: str) -> bool:
    """Return whether a WITH around the table defines the name.

    A CTE can be used by later CTEs of its WITH, and by itself if the WITH is RECURSIVE.
    """
    node: exp.Expr | None = table.parent
    enclosing_cte: exp.Expr | None = None
    while node is not None:
        enclosing_cte = node if isinstance(node, exp.CTE) else enclosing_cte
        clause = node.args.get("with_")
        if clause and name.casefold() in _visible_cte_names(clause, enclosing_cte):
            return True
        node = node.parent
    return False


def _visible_cte_names(clause: exp.With, enclosing_cte: exp.Expr | None) -> Iterator[str]:
    for cte in clause.expressions:
        if cte is not enclosing_cte or clause.recursive:
            yield cte.alias.casefold()
        if cte is enclosing_cte:
            return


def _needs_alias(use: _InputUse, query: ParsedQuery) -> bool:
    """Return whether the input needs an alias because columns may be qualified with its name.

    A file's name can't qualify columns, and TABLE a.b can't have an alias.
    """
    if use.table.alias or isinstance(use.input, FileInput):
        return False
    return use.start not in query.clauses.table_queries


NameParts: TypeAlias = Sequence[exp.Identifier]


class Qualifier(NamedTuple):
    """The qualifier of a column, which must be replaced by the alias of the column's table."""

    start: int
    end: int
    table: int  # id() of the column's table in the tree


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class InputAliases:
    by_table: Mapping[int, str]  # alias by id() of the table in the tree
    full_names: Mapping[tuple[int, str], int]  # (id() of the SELECT, mart.customers) → id() of the table
    # (id() of the SELECT, customers) → id() of the table; None: don't replace the qualifier
    short_names: Mapping[tuple[int, str], int | None]

    def find_qualifiers(self, nodes: Iterable[exp.Expr]) -> Iterator[Qualifier]:
        """Yield the qualifiers that must be replaced: names of inputs that got an alias here."""
        for node in nodes if self.by_table else ():
            if isinstance(node, exp.Column) and len(node.parts) > 1:
                qualifier = self._find_qualifier(
                    node, [part for part in node.parts if isinstance(part, exp.Identifier)]
                )
                if qualifier:
                    yield qualifier

    def _find_qualifier(self, column: exp.Column, parts: NameParts) -> Qualifier | None:
        """Return the column's qualifier if it must be replaced; None otherwise.

        The innermost SELECT is searched first. Within a SELECT, mart.customers is searched before customers, as in
        Spark.
        """
        for scope in _enclosing_selects(column):
            qualified_table = self.full_names.get((scope, _join_name_parts(parts[:2])))
            if qualified_table is not None and len(column.parts) > 2:
                return Qualifier(parts[0].meta["start"], parts[1].meta["end"] + 1, qualified_table)
            name = (scope, parts[0].name.casefold())
            if name in self.short_names:
                table = self.short_names[name]
                return None if table is None else Qualifier(parts[0].meta["start"], parts[0].meta["end"] + 1, table)
        return None


def _build_reference(use: _InputUse, aliases: InputAliases, query: ParsedQuery) -> Reference:
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


NAMED_SOURCES = exp.Table | exp.Subquery | exp.UDTF  # FROM items that may qualify columns by their name


class _NamedSource(NamedTuple):
    """A named item of a FROM: a table, subquery or function."""

    node: exp.Expr
    scopes: tuple[int, ...]  # the SELECT that the item belongs to, and all SELECTs around it


def choose_aliases(nodes: Iterable[exp.Expr], tables: Mapping[int, NameParts]) -> InputAliases:
    """Return aliases for `tables`, which maps id() of a table in the tree to the parts of the table's name."""
    sources_by_name: dict[str, list[_NamedSource]] = {}
    for node in nodes:
        if isinstance(node, NAMED_SOURCES):
            source = _NamedSource(node, tuple(_enclosing_selects(node)) or (0,))
            sources_by_name.setdefault(node.alias_or_name.casefold(), []).append(source)
    by_table: dict[int, str] = {}
    full_names: dict[tuple[int, str], int] = {}
    short_names: dict[tuple[int, str], int | None] = {}
    for name, sources in sources_by_name.items():
        ambiguous_scopes = _ambiguous_scopes(sources)
        for source in sources:
            table, scope = id(source.node), source.scopes[0]
            parts = tables.get(table)
            if parts is None:
                short_names[scope, name] = None
                continue
            is_clear = scope not in ambiguous_scopes
            by_table[table] = parts[-1].name if is_clear else ".".join(part.name for part in parts)
            full_names.setdefault((scope, _join_name_parts(parts)), table)
            if is_clear or not _is_semi_join_side(source.node):
                short_names[scope, name] = None if is_clear or (scope, name) in short_names else table
    return InputAliases(by_table=by_table, full_names=full_names, short_names=short_names)


def _ambiguous_scopes(sources: Sequence[_NamedSource]) -> set[int]:
    """Return the SELECTs in which a column, also one in a subquery, may see two of `sources` by their common name."""
    own_scopes = [source.scopes[0] for source in sources]
    ambiguous_scopes = {scope for scope, times in collections.Counter(own_scopes).items() if times > 1}
    for source in sources:
        outer_scopes = set(source.scopes[1:]).intersection(own_scopes)
        ambiguous_scopes |= outer_scopes | {source.scopes[0]} if outer_scopes else set()
    return ambiguous_scopes


def _is_semi_join_side(source: exp.Expr) -> bool:
    """Return whether the item is the right side of a SEMI or ANTI join, whose columns only the join itself sees."""
    join = source.parent
    return isinstance(join, exp.Join) and join.kind in ("SEMI", "ANTI")


def _enclosing_selects(node: exp.Expr) -> Iterator[int]:
    """Yield the SELECT that a node belongs to, and all SELECTs around it, the innermost first."""
    select = node.parent_select
    while select is not None:
        yield id(select)
        select = select.parent_select


def _join_name_parts(parts: NameParts) -> str:
    return ".".join(part.name for part in parts).casefold()
