"""How many rows of which change type the queue holds for a run: the first line of the grid."""

from collections.abc import Mapping

from ondatra_dagster.changes import ChangeType
from ondatra_dagster.delivery.queue.tables import GROUP_ROWS, Queue
from ondatra_dagster.delivery.target import Shape
from ondatra_dagster.sync.summary import OPERATIONS, Operation
from ondatra_dagster.wording import count

# a row unit is one operation
_ROWS = """
select iif(target = '', 'delete', iif(base = '', 'insert', 'update_postimage')) as change, count(*)
from unit where state in ('pending', 'claimed') and version <= :watermark and not is_context group by change
"""
_GROUPS = f"""
select iif(target = '', 'delete', 'insert') as change, sum({GROUP_ROWS})
from unit where state in ('pending', 'claimed') and version <= :watermark group by change
"""
_MIRRORS = """
select 'insert', sum(rows) from unit
where state in ('pending', 'claimed') and version <= :watermark and target != '' having count(*) > 0
"""
_PLANNED = {Shape.ROW: _ROWS, Shape.VERSION: _ROWS, Shape.GROUP: _GROUPS, Shape.MIRROR: _MIRRORS}


def told(counts: Mapping[str, int]) -> str:
    """3 inserts and 1 update."""
    named = {OPERATIONS[ChangeType(change)]: number for change, number in counts.items()}
    parts = [count(named[operation], operation.value) for operation in Operation if named.get(operation)]
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def planned(queue: Queue) -> Mapping[str, int]:
    """Counts by change type of what may go now."""
    return dict(queue.store.rows(_PLANNED[queue.shape], {"watermark": queue.watermark}))
