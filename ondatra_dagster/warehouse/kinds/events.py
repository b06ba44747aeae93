"""Kind events: a table that the collector fills. A run makes it, or alters it."""

from ondatra_dagster.warehouse.kinds.effect import Effect, Work, rows_before


def write(work: Work) -> Effect:
    """No row: those come in by HTTP, once each."""
    work.before_commit(lambda: work.target.rows)
    return Effect(rows=rows_before(work.target))
