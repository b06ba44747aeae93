"""Which module writes which kind; a test holds the names equal to those of project/kinds."""

from ondatra_dagster.warehouse.kinds import merge, table, tracked
from ondatra_dagster.warehouse.kinds.effect import Writer

WRITERS: dict[str, Writer] = {
    "table": table.write,
    "merge": merge.write,
    "tracked": tracked.write,
}
