"""The duty that says how many dead letters there are, and since when: nobody else comes back to old ones."""

from collections.abc import Collection, Mapping

from ondatra_dagster.delivery.queue.states import QueueState
from ondatra_dagster.operations.maintain import Done
from ondatra_dagster.wording import count

DEAD_LETTERS = "dead_letters"
DAY_SECONDS = 86_400


def report_dead_letters(
    queues: Mapping[str, QueueState | None],
    *,
    unread: Collection[str] = (),
    lost: Collection[str] = (),
    now: float,
) -> Done:
    """Tell of each sync that has some how many, and how old the oldest is. Nothing goes.

    Of those whose queue can't be read, or is lost, nobody knows.
    """
    each = {
        sync_id: (queue.dead, int((now - (queue.dead_since or now)) / DAY_SECONDS))
        for sync_id, queue in queues.items()
        if queue and queue.dead
    }
    total = sum(dead for dead, _ in each.values())
    oldest = max((days for _, days in each.values()), default=0)
    told = f"{count(total, 'dead letter')} of {', '.join(each)}, the oldest of {count(oldest, 'day')}"
    reasons = {"can't be read": unread, "is lost": lost}
    unknown = "".join(
        f"; of {', '.join(syncs)} nobody knows, for its queue {reason}"
        for reason, syncs in reasons.items()
        if syncs
    )
    return Done(
        duty=DEAD_LETTERS,
        did=(f"{told}: see `ondatra dead SYNC`" if each else "there are none") + unknown,
        counts={"dead": total, "oldest_days": oldest},
        each=tuple(
            {"sync": sync_id, "dead": dead, "oldest_days": days} for sync_id, (dead, days) in each.items()
        ),
        is_good=not unread,
    )
