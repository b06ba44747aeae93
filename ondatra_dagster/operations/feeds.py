"""The duty that has each sync take in what its table has new, so that what it hasn't seen holds nothing back.

Nothing is sent. It comes before all that frees space.
"""

from collections.abc import Callable, Mapping

from ondatra_dagster.errors import BusyError, OndatraError, ResyncNeededError
from ondatra_dagster.operations.maintain import Done
from ondatra_dagster.sync.intake import TakenIn
from ondatra_dagster.wording import count

FEEDS = "feeds"

TakeIn = Callable[[], TakenIn | None]


def take_in_feeds(syncs: Mapping[str, TakeIn]) -> Done:
    """Bring the queues of these syncs, which are behind, up to their tables."""
    versions, told, is_good = {}, [], True
    for sync_id, take_in in syncs.items():
        try:
            if taken := take_in():
                versions[sync_id] = taken.upto - taken.after
        except BusyError:
            told.append(f"{sync_id} is at work, and takes them in by itself")
        except ResyncNeededError as error:  # its own runs fail for it
            told.append(str(error))
        except OndatraError as error:
            is_good = False
            told.append(f"{sync_id}: {error}")
    taken_in = f"{count(len(versions), 'sync')} took in new versions" if versions else ""
    return Done(
        duty=FEEDS,
        did="; ".join(filter(None, [taken_in, *told])) or "every sync has seen its table as it is",
        counts={"syncs": len(versions), "versions": sum(versions.values())},
        each=tuple({"sync": sync_id, "versions": number} for sync_id, number in versions.items()),
        is_good=is_good,
    )
