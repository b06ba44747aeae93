"""The tracing of a query's columns, through the query's tree, to the columns that they are computed from.

Only the columns that a value is computed from are its sources. The columns of WHERE, ON and GROUP BY aren't, because
they only decide which rows there are. A column that can't be traced is unknown.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from sqlglot import exp

from ondatra_dagster.project.sql.column_name_resolution import (
    NO_SOURCES,
    UNKNOWN_SOURCES,
    ColumnScope,
    FromSource,
    OutputColumn,
    Relation,
    ValueSources,
    merge_sources,
    opaque_relation,
    unknown_sources,
)
from ondatra_dagster.project.sql.output_and_system_columns import find_certain_names

JSON_FUNCTIONS = frozenset({"json_object", "json_array", "json_group_array"})
# the prefix of a JSON builder's name in the tree: without it, sqlglot parses json_object by a special grammar
JSON_FUNCTION_MARK = "ondatra "
# expressions that return one of their arguments unchanged
PASS_THROUGH_FUNCTIONS = (exp.Max, exp.Min, exp.First, exp.Last, exp.AnyValue, exp.Filter, exp.Window, exp.Paren)
MAX_RECURSION_ROUNDS = 10  # the maximum number of rounds over a recursive query, which ends earlier if no source is new

CteRelations = Mapping[str, Relation]  # relation by the casefolded name of its CTE
InputRelationLookup = Callable[[exp.Table], Relation]  # returns the relation of an input


def trace_columns(tree: exp.Expr, find_relation: InputRelationLookup) -> Relation:
    """Return the columns of a whole query as a relation."""
    return ColumnTracer(find_relation).trace_query(tree, {}, None)


def is_json_function(node: exp.Expr) -> bool:
    """Return whether the node is a call of a JSON builder by its plain name."""
    return isinstance(node, exp.Anonymous) and str(node.this).startswith(JSON_FUNCTION_MARK)


def json_value_check(tree: exp.Expr) -> Callable[[exp.Expr], bool]:
    """Return a function that says whether a node of the query is the text of a JSON builder."""
    tracer = ColumnTracer(lambda _: opaque_relation())
    tracer.trace_query(tree, {}, None)

    def is_json(node: exp.Expr) -> bool:
        return tracer.is_json_value(node, *tracer.scopes.get(id(node.parent_select), (ColumnScope(), {})))

    return is_json


class ColumnTracer:
    """A tracer of one query. For each SELECT, it stores what column names mean there."""

    def __init__(self, find_relation: InputRelationLookup) -> None:
        self._relation_of = find_relation
        self.scopes: dict[int, tuple[ColumnScope, CteRelations]] = {}  # by id() of the SELECT
        self.outputs: dict[int, Relation] = {}  # by id() of the SELECT

    def trace_query(self, node: exp.Expr, ctes: CteRelations, outer: ColumnScope | None) -> Relation:
        """Return the columns of a query or subquery as a relation."""
        ctes = self._trace_ctes(node, ctes, outer)
        if isinstance(node, exp.Subquery):
            relation = self._trace_parentheses(node, ctes, outer)
            return relation.with_names(_column_names(node))
        if isinstance(node, exp.SetOperation):
            return self._trace_set_operation(node, ctes, outer)
        if isinstance(node, exp.Select):
            return self._trace_select(node, ctes, outer)
        if isinstance(node, exp.Values):
            return self._trace_values(node, ctes, outer)
        return opaque_relation()

    def _trace_parentheses(self, node: exp.Subquery, ctes: CteRelations, outer: ColumnScope | None) -> Relation:
        if isinstance(node.this, exp.Table):
            scope = ColumnScope(outer=outer)
            self.add_source(node.this, scope, ctes)
            return _apply_pivot(node, scope.expand_star())
        return _apply_pivot(node, self.trace_query(node.this, ctes, outer))

    def _trace_ctes(self, node: exp.Expr, ctes: CteRelations, outer: ColumnScope | None) -> CteRelations:
        """Return the visible CTEs by name, with those of the node's WITH. Each CTE sees the earlier ones."""
        clause = node.args.get("with_")
        if not clause:
            return ctes
        relations = dict(ctes)
        for cte in clause.expressions:
            names = _column_names(cte)
            name = cte.alias.casefold()
            if clause.args.get("recursive"):
                relations[name] = self._trace_recursive(cte.this, name, names, relations)
            else:
                relations[name] = self.trace_query(cte.this, relations, None).with_names(names)
        return relations

    def _trace_recursive(self, body: exp.Expr, name: str, names: Sequence[str], ctes: CteRelations) -> Relation:
        """Return the relation of a recursive CTE. The query is traced in rounds until no column has new sources."""
        if not isinstance(body, exp.SetOperation):
            return self.trace_query(body, ctes, None).with_names(names)
        relation = self.trace_query(body.this, ctes, None).with_names(names)
        for _ in range(MAX_RECURSION_ROUNDS):
            next_relation = self.trace_query(body, {**ctes, name: relation}, None).with_names(names)
            if next_relation.unknown_columns is None and next_relation.columns == relation.columns:
                return relation
            relation = next_relation
        return Relation(columns=tuple(OutputColumn(column.name, UNKNOWN_SOURCES) for column in relation.columns))

    def _trace_set_operation(self, node: exp.SetOperation, ctes: CteRelations, outer: ColumnScope | None) -> Relation:
        left, right = self.trace_query(node.this, ctes, outer), self.trace_query(node.expression, ctes, outer)
        if not isinstance(node, exp.Union):
            return left  # the result of EXCEPT or INTERSECT has rows of the left side only
        return left.union_by_name(right) if node.args.get("by_name") else left.union(right)

    def _trace_values(self, node: exp.Values, ctes: CteRelations, outer: ColumnScope | None) -> Relation:
        scope = ColumnScope(outer=outer)
        rows = [row.expressions if isinstance(row, exp.Tuple) else [row] for row in node.expressions]
        names = _column_names(node) or [f"col{place}" for place in range(1, len(rows[0]) + 1)]
        if any(len(row) != len(names) for row in rows):
            return opaque_relation()
        columns = zip(names, zip(*rows, strict=True), strict=True)
        return Relation(
            columns=tuple(
                OutputColumn(name, merge_sources([self._value_sources(cell, scope, ctes) for cell in cells]))
                for name, cells in columns
            )
        )

    def _trace_select(self, node: exp.Select, ctes: CteRelations, outer: ColumnScope | None) -> Relation:
        scope = ColumnScope(outer=outer)
        self.scopes[id(node)] = scope, ctes
        if node.args.get("from_"):
            self.add_source(node.args["from_"].this, scope, ctes)
        for join in node.args.get("joins") or ():
            self._trace_join(join, scope, ctes)
        for lateral in node.args.get("laterals") or ():
            self.add_source(lateral, scope, ctes)
        relation = opaque_relation() if node.args.get("kind") else self._trace_projections(node, scope, ctes)
        self.outputs[id(node)] = relation
        return relation

    def _trace_projections(self, node: exp.Select, scope: ColumnScope, ctes: CteRelations) -> Relation:
        columns: list[OutputColumn] = []
        lookups = []
        for projection in node.expressions:
            if isinstance(projection, exp.QueryTransform):
                return opaque_relation()
            relation = self._trace_projection(projection, scope, ctes)
            columns += relation.columns
            lookups += [relation.unknown_columns] if relation.unknown_columns else []
            for column in relation.columns:
                if column.name is not None and isinstance(projection, exp.Alias | exp.Aliases):
                    scope.aliases[column.name.casefold()] = column.sources
        lookup = lookups[0] if len(lookups) == 1 else unknown_sources if lookups else None
        return Relation(columns=tuple(columns), unknown_columns=lookup)

    def _trace_projection(self, node: exp.Expr, scope: ColumnScope, ctes: CteRelations) -> Relation:
        if node.is_star:
            star = node if isinstance(node, exp.Star) else node.this
            return self._apply_star_except(star, self._expand_star(node, scope))
        value_sources = self._value_sources(node, scope, ctes)
        names: list[str | None] = [name.name for name in find_certain_names(node)]
        return Relation(columns=tuple(OutputColumn(name, value_sources) for name in names or [None]))

    def _apply_star_except(self, star: exp.Expr, source_relation: Relation) -> Relation:
        """Return the relation of * EXCEPT (a, b): the source's columns without a and b."""
        if star.args.get("replace") or star.args.get("rename"):
            return opaque_relation()
        return source_relation.without_columns({column.name.casefold() for column in star.args.get("except_") or ()})

    def _expand_star(self, node: exp.Expr, scope: ColumnScope) -> Relation:
        if not isinstance(node, exp.Column):
            return scope.expand_star()
        parts = [part.name for part in node.parts[:-1]]
        sources = scope.sources_named(tuple(part.casefold() for part in parts))
        if len(sources) == 1:
            return sources[0].relation
        # a star over the fields of a struct column
        return opaque_relation() if sources else opaque_relation(scope.resolve_column(parts))

    def add_source(self, node: exp.Expr, scope: ColumnScope, ctes: CteRelations) -> None:
        """Add the columns of an item in FROM to the scope."""
        if isinstance(node, exp.Subquery) and isinstance(node.this, exp.Table) and not node.alias:
            self.add_source(node.this, scope, ctes)  # (a JOIN b): both tables keep their names
        else:
            scope.sources.append(self._trace_source(node, scope, ctes))
        for join in node.args.get("joins") or ():
            self._trace_join(join, scope, ctes)

    def _trace_source(self, node: exp.Expr, scope: ColumnScope, ctes: CteRelations) -> FromSource:
        if isinstance(node, exp.Table) and not isinstance(node.this, exp.Func):
            return self._trace_table(node, ctes)
        return FromSource(_pivot_name(node) or node.alias, (), self._trace_from_item(node, scope, ctes))

    def _trace_table(self, node: exp.Table, ctes: CteRelations) -> FromSource:
        names = [part.name for part in node.parts]
        relation = ctes.get(names[0].casefold()) if len(names) == 1 else None
        relation = relation or self._relation_of(node)
        if node.args.get("pivots"):
            return FromSource(_pivot_name(node) or node.alias_or_name, (), _apply_pivot(node, relation))
        full_name = () if node.alias else tuple(name.casefold() for name in names)
        return FromSource(node.alias_or_name, full_name, relation.with_names(_column_names(node)))

    def _trace_from_item(self, node: exp.Expr, scope: ColumnScope, ctes: CteRelations) -> Relation:
        """Return the columns of a subquery or function in FROM, as a relation."""
        if isinstance(node, exp.Lateral) and isinstance(node.this, exp.Query):
            return self.trace_query(node.this, ctes, scope).with_names(_column_names(node))
        if isinstance(node, exp.Query | exp.Values):
            return self.trace_query(node, ctes, scope.outer)
        call = node if isinstance(node, exp.Unnest) else node.this
        is_function = isinstance(call, exp.Func) and not call.find(exp.Query)
        value_sources = self._value_sources(call, scope, ctes) if is_function else UNKNOWN_SOURCES
        return opaque_relation(value_sources).with_names(_column_names(node))

    def _trace_join(self, join: exp.Join, scope: ColumnScope, ctes: CteRelations) -> None:
        if join.kind in ("SEMI", "ANTI"):
            return  # SEMI and ANTI joins return no columns of the right side
        left_scope = ColumnScope(sources=list(scope.sources), merged_columns=dict(scope.merged_columns))
        left_scope.has_unknown_natural_join = scope.has_unknown_natural_join
        self.add_source(join.this, scope, ctes)
        right_scope = ColumnScope(sources=scope.sources[len(left_scope.sources) :])
        if join.method == "NATURAL":
            names = left_scope.expand_star().common_columns(right_scope.expand_star())
            scope.has_unknown_natural_join |= names is None
        else:
            names = [name.name for name in join.args.get("using") or ()]
        for name in names or ():
            left, right = (
                left_scope.find_column(name) or UNKNOWN_SOURCES,
                right_scope.find_column(name) or UNKNOWN_SOURCES,
            )
            merged_sources = {"RIGHT": right, "FULL": left | right}.get(join.side, left)
            scope.merged_columns[name.casefold()] = OutputColumn(name, merged_sources)

    def _value_sources(self, node: exp.Expr, scope: ColumnScope, ctes: CteRelations) -> ValueSources:
        """Return the sources of an expression's value."""
        parts = list(self._part_sources(node, scope, ctes))
        merged_sources = merge_sources(parts)
        is_json = self.is_json_value(node, scope, ctes)
        return ValueSources(origins=merged_sources.origins, is_known=merged_sources.is_known, is_json=is_json)

    def _part_sources(self, node: exp.Expr, scope: ColumnScope, ctes: CteRelations) -> Iterator[ValueSources]:
        for part in node.walk(prune=lambda part: isinstance(part, exp.Query | exp.Column)):
            if isinstance(part, exp.Query):
                relation = self.trace_query(part, ctes, scope)
                yield from (column.sources for column in relation.columns)
                if relation.unknown_columns:
                    yield UNKNOWN_SOURCES
            elif isinstance(part, exp.Star) or (isinstance(part, exp.Column) and part.is_star):
                yield self._star_sources(part, scope)
            elif isinstance(part, exp.Column):
                yield scope.resolve_column([name.name for name in part.parts])
            elif isinstance(part, exp.JSONExtract) and not isinstance(part.expression, exp.JSONPath):
                yield UNKNOWN_SOURCES  # sqlglot misreads the lambda arrow in f(g => x -> y)
            elif isinstance(part, exp.Window) and part.args.get("alias"):
                yield from self._window_sources(part, scope, ctes)

    def _star_sources(self, star: exp.Expr, scope: ColumnScope) -> ValueSources:
        if isinstance(star.parent, exp.Count):
            return NO_SOURCES
        relation = self._expand_star(star, scope)
        has_unknown_columns = relation.unknown_columns is not None
        return (
            UNKNOWN_SOURCES if has_unknown_columns else merge_sources([column.sources for column in relation.columns])
        )

    def _window_sources(self, window: exp.Window, scope: ColumnScope, ctes: CteRelations) -> Iterator[ValueSources]:
        select = window.parent_select
        for named_window in (select.args.get("windows") or ()) if select else ():
            if named_window.this.name.casefold() == window.args["alias"].name.casefold() and named_window is not window:
                yield from self._part_sources(named_window, scope, ctes)

    def is_json_value(self, node: exp.Expr, scope: ColumnScope, ctes: CteRelations) -> bool:
        """Return whether a value certainly is null or the text of a JSON builder."""
        node = node.unalias()
        if isinstance(node, exp.Column):
            return not node.is_star and scope.resolve_column([name.name for name in node.parts]).is_json
        if isinstance(node, exp.Subquery | exp.Select | exp.SetOperation):
            columns = self.trace_query(node, ctes, scope).columns
            return len(columns) == 1 and columns[0].sources.is_json
        if isinstance(node, exp.Cast):
            # `node.to` raises TypeError for `a::struct<b: int>(c)`, where it isn't a type
            target_type = node.args["to"]
            return isinstance(target_type, exp.DataType) and bool(target_type.this == exp.DataType.Type.JSON)
        if isinstance(node, PASS_THROUGH_FUNCTIONS):
            return self.is_json_value(node.this, scope, ctes)
        branches = [branch for branch in _choice_branches(node) if not isinstance(branch.unnest(), exp.Null)]
        return is_json_function(node) or (
            bool(branches) and all(self.is_json_value(branch, scope, ctes) for branch in branches)
        )


def _choice_branches(node: exp.Expr) -> list[exp.Expr]:
    """Return the values from which an expression such as CASE or COALESCE chooses one."""
    if isinstance(node, exp.Coalesce):
        return [node.this, *node.expressions]
    if isinstance(node, exp.If):
        return [branch for branch in (node.args.get("true"), node.args.get("false")) if branch]
    if isinstance(node, exp.Case):
        default = node.args.get("default")
        return [condition.args["true"] for condition in node.args["ifs"]] + ([default] if default else [])
    return []


def _column_names(node: exp.Expr) -> list[str]:
    """Return the column names a and b in AS t(a, b)."""
    alias = node.args.get("alias")
    return [column.name for column in alias.columns] if isinstance(alias, exp.TableAlias) else []


def _pivot_name(node: exp.Expr) -> str | None:
    return next((pivot.alias for pivot in node.args.get("pivots") or () if pivot.alias), None)


def _apply_pivot(node: exp.Expr, source_relation: Relation) -> Relation:
    """Return the relation after UNPIVOT (value FOR name IN (a, b)). The columns of a PIVOT are unknown."""
    pivots = node.args.get("pivots")
    if not pivots:
        return source_relation
    fields = pivots[0].args.get("fields") or []
    if len(pivots) > 1 or not pivots[0].unpivot or len(fields) != 1 or len(pivots[0].expressions) != 1:
        return opaque_relation()
    columns = [column.this if isinstance(column, exp.PivotAlias) else column for column in fields[0].expressions]
    value, name = pivots[0].expressions[0], fields[0].this
    if not all(isinstance(column, exp.Column) for column in columns) or not isinstance(value, exp.Identifier):
        return opaque_relation()
    relation = source_relation.unpivot([column.name for column in columns], name=name.name, value=value.name)
    return relation.with_names(_column_names(pivots[0]))
