"""Events that were taken and then had no place in the columns, in SCHEMA.TABLE__invalid, where they stay."""

import dataclasses
from collections.abc import Sequence

from ondatra_dagster.arrivals import Misfit
from ondatra_dagster.planning.commit_note import CommitNote
from ondatra_dagster.planning.delta_log import invalid_path, last_transaction
from ondatra_dagster.warehouse.delta_tables import Identity, Target, Transaction, open_target
from ondatra_dagster.warehouse.event_rows import ASIDE, misfit_frame
from ondatra_dagster.warehouse.kinds.effect import rows_before

IDENTITY = Identity(kind="misfits", key_columns=())


def keep_misfits(
    table: Target, misfits: Sequence[Misfit], note: CommitNote, transaction: Transaction
) -> None:
    """Add those that aren't there yet, in one commit; a flush that was cut off has added them already."""
    if not misfits:
        return
    path = invalid_path(table.path)
    aside = open_target(table.session, path, ASIDE.fields, IDENTITY, converts=True)
    there = last_transaction(path, transaction.numbering) or 0
    new = [misfit for misfit in misfits if misfit.number > there]
    if new:
        told = dataclasses.replace(note, rows=rows_before(aside) + len(new))
        aside.append(misfit_frame(table.session, new), told, transaction=transaction)
    aside.end()
