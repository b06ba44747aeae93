"""What each column that a query gives is made of: read from its tree, without its rows.

Values count, not which rows there are: the columns of WHERE, ON and GROUP BY make no value. What can't be
followed is unknown.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from sqlglot import exp

from ondatra_dagster.project.sql.columns import surely_named
from ondatra_dagster.project.sql.relations import (
    NOTHING,
    UNKNOWN,
    Given,
    Made,
    Relation,
    Scope,
    Source,
    opaque,
    together,
    unknown,
)

BUILDERS = frozenset({"json_object", "json_array", "json_group_array"})
MARK = (
    "ondatra "  # before the name of a builder in the tree: sqlglot has a grammar of its own for json_object
)
# what gives one of its arguments as it is
PASSES_ON = (exp.Max, exp.Min, exp.First, exp.Last, exp.AnyValue, exp.Filter, exp.Window, exp.Paren)
ROUNDS = 10  # of a recursive query, until nothing new flows

Ctes = Mapping[str, Relation]  # by name, casefolded
RelationOf = Callable[[exp.Table], Relation]  # an input's


def read_flow(tree: exp.Expr, relation_of: RelationOf) -> Relation:
    """The columns that a whole query gives."""
    return Flow(relation_of).query(tree, {}, None)


def is_builder(node: exp.Expr) -> bool:
    """Whether it calls a JSON builder, by its plain name."""
    return isinstance(node, exp.Anonymous) and str(node.this).startswith(MARK)


class JsonValues:
    """Tells of each value in a query whether it is a JSON builder's text."""

    def __init__(self, tree: exp.Expr) -> None:
        flow = Flow(lambda _: opaque(), keeps_scopes=True)
        flow.query(tree, {}, None)
        self._flow = flow

    def __call__(self, node: exp.Expr) -> bool:
        select = node.parent_select
        scope, ctes = self._flow.scopes.get(id(select), (Scope(), {}))
        return self._flow.is_json(node, scope, ctes)


class Flow:
    """One reading of a query; it keeps what the columns of each SELECT can mean, when that is asked for."""

    def __init__(self, relation_of: RelationOf, *, keeps_scopes: bool = False) -> None:
        self._relation_of = relation_of
        self._keeps_scopes = keeps_scopes
        self.scopes: dict[int, tuple[Scope, Ctes]] = {}  # by id() of the SELECT
        self.given: dict[int, Relation] = {}  # by the same

    def query(self, node: exp.Expr, ctes: Ctes, outer: Scope | None) -> Relation:
        """What a query gives, wherever it stands."""
        ctes = self._with(node, ctes, outer)
        if isinstance(node, exp.Subquery):
            given = self._in_parentheses(node, ctes, outer)
            return given.named(_column_names(node))
        if isinstance(node, exp.SetOperation):
            return self._set_operation(node, ctes, outer)
        if isinstance(node, exp.Select):
            return self._select(node, ctes, outer)
        if isinstance(node, exp.Values):
            return self._values(node, ctes, outer)
        return opaque()

    def _in_parentheses(self, node: exp.Subquery, ctes: Ctes, outer: Scope | None) -> Relation:
        if isinstance(node.this, exp.Table):
            scope = Scope(outer=outer)
            self.add(node.this, scope, ctes)
            return _turned(node, scope.star())
        return _turned(node, self.query(node.this, ctes, outer))

    def _with(self, node: exp.Expr, ctes: Ctes, outer: Scope | None) -> Ctes:
        """What the names of its WITH give, each in sight of those before it."""
        clause = node.args.get("with_")
        if not clause:
            return ctes
        known = dict(ctes)
        for cte in clause.expressions:
            names = _column_names(cte)
            name = cte.alias.casefold()
            if clause.args.get("recursive"):
                known[name] = self._recursive(cte.this, name, names, known)
            else:
                known[name] = self.query(cte.this, known, None).named(names)
        return known

    def _recursive(self, body: exp.Expr, name: str, names: Sequence[str], ctes: Ctes) -> Relation:
        """Round by round, as its rows are made, until no column is made of anything new."""
        if not isinstance(body, exp.SetOperation):
            return self.query(body, ctes, None).named(names)
        given = self.query(body.this, ctes, None).named(names)
        for _ in range(ROUNDS):
            more = self.query(body, {**ctes, name: given}, None).named(names)
            if more.rest is None and more.columns == given.columns:
                return given
            given = more
        return Relation(columns=tuple(Given(column.name, UNKNOWN) for column in given.columns))

    def _set_operation(self, node: exp.SetOperation, ctes: Ctes, outer: Scope | None) -> Relation:
        left, right = self.query(node.this, ctes, outer), self.query(node.expression, ctes, outer)
        if not isinstance(node, exp.Union):
            return left  # EXCEPT and INTERSECT give rows of the left side
        return left.united_by_name(right) if node.args.get("by_name") else left.united(right)

    def _values(self, node: exp.Values, ctes: Ctes, outer: Scope | None) -> Relation:
        scope = Scope(outer=outer)
        rows = [row.expressions if isinstance(row, exp.Tuple) else [row] for row in node.expressions]
        names = _column_names(node) or [f"col{place}" for place in range(1, len(rows[0]) + 1)]
        if any(len(row) != len(names) for row in rows):
            return opaque()
        columns = zip(names, zip(*rows, strict=True), strict=True)
        return Relation(
            columns=tuple(
                Given(name, together([self._made(cell, scope, ctes) for cell in cells]))
                for name, cells in columns
            )
        )

    def _select(self, node: exp.Select, ctes: Ctes, outer: Scope | None) -> Relation:
        scope = Scope(outer=outer)
        if self._keeps_scopes:
            self.scopes[id(node)] = scope, ctes
        if node.args.get("from_"):
            self.add(node.args["from_"].this, scope, ctes)
        for join in node.args.get("joins") or ():
            self._join(join, scope, ctes)
        for lateral in node.args.get("laterals") or ():
            self.add(lateral, scope, ctes)
        given = opaque() if node.args.get("kind") else self._projections(node, scope, ctes)
        if self._keeps_scopes:
            self.given[id(node)] = given
        return given

    def _projections(self, node: exp.Select, scope: Scope, ctes: Ctes) -> Relation:
        columns: list[Given] = []
        rests = []
        for projection in node.expressions:
            if isinstance(projection, exp.QueryTransform):
                return opaque()
            part = self._projection(projection, scope, ctes)
            columns += part.columns
            rests += [part.rest] if part.rest else []
            for column in part.columns:
                if column.name is not None and isinstance(projection, exp.Alias | exp.Aliases):
                    scope.aliases[column.name.casefold()] = column.made
        rest = rests[0] if len(rests) == 1 else unknown if rests else None
        return Relation(columns=tuple(columns), rest=rest)

    def _projection(self, node: exp.Expr, scope: Scope, ctes: Ctes) -> Relation:
        if node.is_star:
            return self._some_columns(
                node if isinstance(node, exp.Star) else node.this, self._star(node, scope)
            )
        made = self._made(node, scope, ctes)
        names: list[str | None] = [name.name for name in surely_named(node)]
        return Relation(columns=tuple(Given(name, made) for name in names or [None]))

    def _some_columns(self, star: exp.Expr, given: Relation) -> Relation:
        """* EXCEPT (a, b)."""
        if star.args.get("replace") or star.args.get("rename"):
            return opaque()
        return given.without({column.name.casefold() for column in star.args.get("except_") or ()})

    def _star(self, node: exp.Expr, scope: Scope) -> Relation:
        if not isinstance(node, exp.Column):
            return scope.star()
        parts = [part.name for part in node.parts[:-1]]
        sources = scope.named(tuple(part.casefold() for part in parts))
        if len(sources) == 1:
            return sources[0].relation
        return opaque(scope.resolve(parts)) if not sources else opaque()  # the fields of a struct

    def add(self, node: exp.Expr, scope: Scope, ctes: Ctes) -> None:
        """Let the columns of something in FROM be seen."""
        if isinstance(node, exp.Subquery) and isinstance(node.this, exp.Table) and not node.alias:
            self.add(node.this, scope, ctes)  # (a JOIN b): its tables keep their names
        else:
            scope.sources.append(self._source(node, scope, ctes))
        for join in node.args.get("joins") or ():
            self._join(join, scope, ctes)

    def _source(self, node: exp.Expr, scope: Scope, ctes: Ctes) -> Source:
        if isinstance(node, exp.Table) and not isinstance(node.this, exp.Func):
            return self._table(node, ctes)
        return Source(_pivot_name(node) or node.alias, (), self._relation(node, scope, ctes))

    def _table(self, node: exp.Table, ctes: Ctes) -> Source:
        names = [part.name for part in node.parts]
        relation = ctes.get(names[0].casefold()) if len(names) == 1 else None
        relation = relation or self._relation_of(node)
        if node.args.get("pivots"):
            return Source(_pivot_name(node) or node.alias_or_name, (), _turned(node, relation))
        full_name = () if node.alias else tuple(name.casefold() for name in names)
        return Source(node.alias_or_name, full_name, relation.named(_column_names(node)))

    def _relation(self, node: exp.Expr, scope: Scope, ctes: Ctes) -> Relation:
        """What a subquery in FROM gives, or a function."""
        if isinstance(node, exp.Lateral) and isinstance(node.this, exp.Query):
            return self.query(node.this, ctes, scope).named(_column_names(node))
        if isinstance(node, exp.Query | exp.Values):
            return self.query(node, ctes, scope.outer)
        call = node if isinstance(node, exp.Unnest) else node.this
        is_function = isinstance(call, exp.Func) and not call.find(exp.Query)
        made = self._made(call, scope, ctes) if is_function else UNKNOWN
        return opaque(made).named(_column_names(node))

    def _join(self, join: exp.Join, scope: Scope, ctes: Ctes) -> None:
        if join.kind in ("SEMI", "ANTI"):
            return  # the right side gives no column
        before = Scope(sources=list(scope.sources), merged=dict(scope.merged))
        before.is_merged_anyhow = scope.is_merged_anyhow
        self.add(join.this, scope, ctes)
        added = Scope(sources=scope.sources[len(before.sources) :])
        if join.method == "NATURAL":
            names = before.star().common(added.star())
            scope.is_merged_anyhow |= names is None
        else:
            names = [name.name for name in join.args.get("using") or ()]
        for name in names or ():
            left, right = before.find(name) or UNKNOWN, added.find(name) or UNKNOWN
            made = {"RIGHT": right, "FULL": left | right}.get(join.side, left)
            scope.merged[name.casefold()] = Given(name, made)

    def _made(self, node: exp.Expr, scope: Scope, ctes: Ctes) -> Made:
        """What the value of an expression is made of."""
        parts = list(self._parts(node, scope, ctes))
        made = together(parts)
        is_json = self.is_json(node, scope, ctes)
        return Made(of=made.of, is_known=made.is_known, is_json=is_json)

    def _parts(self, node: exp.Expr, scope: Scope, ctes: Ctes) -> Iterator[Made]:
        for part in node.walk(prune=_is_whole):
            if isinstance(part, exp.Query):
                given = self.query(part, ctes, scope)
                yield from (column.made for column in given.columns)
                if given.rest:
                    yield UNKNOWN
            elif isinstance(part, exp.Star) or (isinstance(part, exp.Column) and part.is_star):
                yield self._all_columns(part, scope)
            elif isinstance(part, exp.Column):
                yield scope.resolve([name.name for name in part.parts])
            elif isinstance(part, exp.JSONExtract) and not isinstance(part.expression, exp.JSONPath):
                yield UNKNOWN  # f(g => x -> y): sqlglot takes the arrow for something else
            elif isinstance(part, exp.Window) and part.args.get("alias"):
                yield from self._named_window(part, scope, ctes)

    def _all_columns(self, star: exp.Expr, scope: Scope) -> Made:
        if isinstance(star.parent, exp.Count):
            return NOTHING
        given = self._star(star, scope)
        return together([column.made for column in given.columns]) if given.rest is None else UNKNOWN

    def _named_window(self, window: exp.Window, scope: Scope, ctes: Ctes) -> Iterator[Made]:
        select = window.parent_select
        for named in (select.args.get("windows") or ()) if select else ():
            if named.this.name.casefold() == window.args["alias"].name.casefold() and named is not window:
                yield from self._parts(named, scope, ctes)

    def is_json(self, node: exp.Expr, scope: Scope, ctes: Ctes) -> bool:
        """Whether the value is surely a JSON builder's text, or null."""
        node = node.unalias()
        if isinstance(node, exp.Column):
            return not node.is_star and scope.resolve([name.name for name in node.parts]).is_json
        if isinstance(node, exp.Subquery | exp.Select | exp.SetOperation):
            columns = self.query(node, ctes, scope).columns
            return len(columns) == 1 and columns[0].made.is_json
        if isinstance(node, exp.Cast):
            return bool(node.to.this == exp.DataType.Type.JSON)
        if isinstance(node, PASSES_ON):
            return self.is_json(node.this, scope, ctes)
        branches = [branch for branch in _branches(node) if not isinstance(branch.unnest(), exp.Null)]
        return is_builder(node) or (
            bool(branches) and all(self.is_json(branch, scope, ctes) for branch in branches)
        )


def _is_whole(node: exp.Expr) -> bool:
    """Whether a part of an expression is looked up as one."""
    return isinstance(node, exp.Query | exp.Column)


def _branches(node: exp.Expr) -> list[exp.Expr]:
    """What a choice chooses from."""
    if isinstance(node, exp.Coalesce):
        return [node.this, *node.expressions]
    if isinstance(node, exp.If):
        return [branch for branch in (node.args.get("true"), node.args.get("false")) if branch]
    if isinstance(node, exp.Case):
        default = node.args.get("default")
        return [each.args["true"] for each in node.args["ifs"]] + ([default] if default else [])
    return []


def _column_names(node: exp.Expr) -> list[str]:
    """The names in AS t(a, b)."""
    alias = node.args.get("alias")
    return [column.name for column in alias.columns] if isinstance(alias, exp.TableAlias) else []


def _pivot_name(node: exp.Expr) -> str | None:
    return next((pivot.alias for pivot in node.args.get("pivots") or () if pivot.alias), None)


def _turned(node: exp.Expr, given: Relation) -> Relation:
    """What UNPIVOT (value FOR name IN (a, b)) makes of a relation; what PIVOT makes depends on its values."""
    pivots = node.args.get("pivots")
    if not pivots:
        return given
    fields = pivots[0].args.get("fields") or []
    if len(pivots) > 1 or not pivots[0].unpivot or len(fields) != 1 or len(pivots[0].expressions) != 1:
        return opaque()
    columns = [each.this if isinstance(each, exp.PivotAlias) else each for each in fields[0].expressions]
    value, name = pivots[0].expressions[0], fields[0].this
    if not all(isinstance(each, exp.Column) for each in columns) or not isinstance(value, exp.Identifier):
        return opaque()
    turned = given.unpivoted([each.name for each in columns], name=name.name, value=value.name)
    return turned.named(_column_names(pivots[0]))
