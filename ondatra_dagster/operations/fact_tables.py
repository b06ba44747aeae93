"""The duty that keeps the fact tables of the tracking store as the project is."""

from collections.abc import Collection

from ondatra_dagster.operations.maintain import Done
from ondatra_dagster.sync.sync import Sync
from ondatra_dagster.tracking.facts import facts_of
from ondatra_dagster.tracking.store import TrackingStore
from ondatra_dagster.wording import count

FACT_TABLES = "fact_tables"


def refresh_fact_tables(tracking: TrackingStore, syncs: Collection[Sync]) -> Done:
    """Write them anew."""
    facts = facts_of(sync.ends for sync in syncs)
    tracking.write_facts(facts)
    return Done(
        duty=FACT_TABLES,
        did=f"the fact tables tell of {count(len(syncs), 'sync')}",
        counts={
            "source_objects": len(facts.source_objects),
            "destinations": len(facts.destinations),
            "destination_objects": len(facts.destination_objects),
        },
    )
