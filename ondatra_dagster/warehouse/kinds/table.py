"""Kind table: the whole content is replaced when any row differs, as a multiset."""

from ondatra_dagster.warehouse.comparison import fingerprint
from ondatra_dagster.warehouse.delta_tables import Target
from ondatra_dagster.warehouse.kinds.differing_rows import write_difference
from ondatra_dagster.warehouse.kinds.effect import Effect, Work


def write(work: Work) -> Effect:
    """Delete of every old row and insert of every new one, in one commit; none when they are the same."""
    target = work.target
    source = work.rows.persist()
    try:
        work.before_commit(lambda: source)
        rows, content = fingerprint(source, target.fields)
        rows_before, content_before = _before(target)
        if (rows, content) == (rows_before, content_before):
            return Effect(rows=rows)
        told = work.told(rows=rows, fingerprint=content)
        if work.is_full and not target.is_empty:
            return write_difference(source, target, told)
        if target.is_empty:
            target.append(source, told)
        else:
            target.overwrite(source, told)
        return Effect(inserted=rows, deleted=rows_before, rows=rows)
    finally:
        source.unpersist()


def _before(target: Target) -> tuple[int, str]:
    """Rows and fingerprint of the table, from its newest commit where that kept them."""
    note = target.state.note
    if note and note.rows is not None and note.fingerprint and target.trusts_hashes:
        return note.rows, note.fingerprint
    return fingerprint(target.rows, target.fields)
