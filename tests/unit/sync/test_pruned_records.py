"""Records past their retention: which go, and what a sync still knows when they have gone."""

import shutil
import time
from datetime import UTC, datetime
from pathlib import Path

import orjson
import pytest
from support.log_table import PlainLogTable

from ondatra_dagster.delivery.outcome import Outcome
from ondatra_dagster.errors import StateError
from ondatra_dagster.operations import retention
from ondatra_dagster.operations.maintain import Done
from ondatra_dagster.operations.sync_log import SyncLog
from ondatra_dagster.project.settings.settings import read_settings
from ondatra_dagster.sync.forget import forget
from ondatra_dagster.sync.resync import Way, resync
from ondatra_dagster.sync.sent import keep_sent
from ondatra_dagster.tracking.files import part_of
from ondatra_dagster.tracking.store import TrackingStore

DAY = 86_400
SYNC = "sync.contacts"


@pytest.fixture
def desk(desk_anywhere):
    """A bucket has to do what a folder does."""
    return desk_anywhere


def prune(desk, *, days: int | None = 14, is_logged: bool = True, syncs=None) -> Done:
    settings = read_settings(desk.state, {})
    log = SyncLog(settings, desk.tracking)
    if is_logged:
        log.append(PlainLogTable(settings))
    syncs = {SYNC: desk.sync} if syncs is None else syncs
    return retention.prune(desk.tracking, log, syncs, days=days, now=datetime.fromtimestamp(desk.now, UTC))


def a_life(desk) -> None:
    """Five runs, ten days after each other."""
    for name in ("Ada", "Ann", "Amy", "Ava", "Abe"):
        desk.contacts.write(a1=name, **({"a2": "Ben"} if name == "Ada" else {}))
        desk.run()
        desk.now += 10 * DAY
    desk.api.take()


def test_runs_past_their_retention_go_with_their_frontiers(desk, at):
    """Fourteen days are what the built-in store is for."""
    a_life(desk)
    runs = desk.tracking.runs(SYNC)
    folders = [f"sync_tracking_datasets/1/{SYNC}/{run_id}" for run_id in runs[:4]]
    size = sum(len(at.read(f"{folder}/{name}")) for folder in folders for name in at.names(folder))
    done = prune(desk)
    assert runs[4:] == desk.tracking.runs(SYNC) == desk.tracking.frontier_runs(SYNC)
    assert (4, True) == (done.counts["runs"], done.counts["bytes"] >= size)
    assert "records of 4 runs older than 14 days are gone" in done.did
    assert 0 == prune(desk).counts["runs"]


def test_nothing_goes_that_is_young_or_where_no_retention_is_set(desk):
    """An own bucket is its owner's."""
    a_life(desk)
    runs = desk.tracking.runs(SYNC)
    assert "for ever" in prune(desk, days=None).did
    assert 0 == prune(desk, days=60).counts["runs"]
    assert 2 == prune(desk, days=35).counts["runs"]
    assert runs[2:] == desk.tracking.runs(SYNC)


def test_what_is_not_in_the_sync_log_stays(desk):
    """Else nobody would ever know what was sent."""
    a_life(desk)
    assert 0 == prune(desk, is_logged=False).counts["runs"]
    assert 4 == prune(desk).counts["runs"]


def test_what_killed_processes_left_half_written_goes(desk, at):
    """In runs that go, it kept their folders there; in those that stay, it would stay for ever."""
    a_life(desk)
    runs = desk.tracking.runs(SYNC)
    folders = [f"sync_tracking_datasets/1/{SYNC}/{run_id}" for run_id in (runs[0], runs[4])]
    for folder in (*folders, f"frontiers/1/{SYNC}"):
        at.write(f"{folder}/{part_of('records_updated.0.parquet')}", b"PAR1")
    done = prune(desk)
    assert runs[4:] == desk.tracking.runs(SYNC)
    if at.address.startswith("s3:"):
        return  # where files are sent whole there are no parts, and nobody looks for them
    assert [] == [name for name in at.names() if name.endswith(".part")]
    assert (4, 2) == (done.counts["runs"], done.counts["parts"])
    assert "; removed 2 files that killed processes left half written, " in done.did


def test_where_records_are_kept_for_ever_parts_are_not(desk, at):
    """They are no records, and no reader sees them."""
    a_life(desk)
    runs = desk.tracking.runs(SYNC)
    at.write(f"frontiers/1/{SYNC}/{part_of('x')}", b"PAR1")
    parts = 0 if at.address.startswith("s3:") else 1
    assert parts == prune(desk, days=None).counts["parts"]
    assert runs == desk.tracking.runs(SYNC)


def test_what_can_t_be_removed_is_told_in_a_sentence(desk, at):
    """A folder of somebody else's among the records mustn't end `ondatra maintain` with a trace."""
    a_life(desk)
    if not at.address.startswith("/"):
        return  # elsewhere a folder is a part of a name
    oldest = at.address + f"/sync_tracking_datasets/1/{SYNC}/{desk.tracking.runs(SYNC)[0]}"
    Path(oldest, "mine", "too").mkdir(parents=True)
    with pytest.raises(StateError, match=r"mine can't be removed \(Directory not empty\); see who may write"):
        prune(desk)
    # what is left still says whose it is: of nobody's run another project takes records into its log
    assert desk.tracking.metadata(SYNC, desk.tracking.runs(SYNC)[0]) is not None


def test_a_part_of_a_living_writer_stays(desk, at):
    """A large file may take its time."""
    a_life(desk)
    at.write(f"frontiers/1/{SYNC}/{part_of('x')}", b"PAR1")
    desk.now = time.time() + DAY - 60
    assert 0 == prune(desk).counts["parts"]


def test_the_newest_run_stays_however_old(desk):
    """A lost queue goes on from it."""
    desk.contacts.write(a1="Ada")
    desk.api.answer = lambda row: Outcome.parse("reject: no")
    desk.run()
    desk.now += 1000 * DAY
    assert 0 == prune(desk).counts["runs"]
    shutil.rmtree(desk.state / "queue")
    desk.contacts.write(a1="Ann")
    desk.api.take()
    desk.api.answer = lambda row: Outcome.parse("ok")
    desk.run()
    assert [("insert", 1, "Ann")] == desk.api.take()


def test_a_lost_queue_goes_on_after_the_records_before_its_frontier_have_gone(desk):
    """They aren't asked for."""
    a_life(desk)
    prune(desk)
    shutil.rmtree(desk.state / "queue")
    desk.contacts.write(a2="Bea")
    desk.run()
    assert [("update_preimage", 2, "Ben"), ("update_postimage", 2, "Bea")] == desk.api.take()


def test_a_resync_still_knows_what_was_sent(desk):
    """Else all that is older than the retention would go out as new, and be in the API twice."""
    a_life(desk)
    prune(desk)
    desk.contacts.table_id = "another"
    desk.contacts.write(a3="Cyn")
    resync(desk.sync, desk.ports(), Way())
    desk.run()
    assert {("insert", 3, "Cyn"), ("update_postimage", 1, "Abe"), ("update_postimage", 2, "Ben")} == {
        row for row in desk.api.take() if row[0] != "update_preimage"
    }


def test_a_resync_still_deletes_what_was_sent_long_ago(desk):
    """With the values that were sent."""
    a_life(desk)
    prune(desk)
    desk.contacts.table_id = "another"
    del desk.contacts.rows[2]
    desk.contacts.feed = [change for change in desk.contacts.feed if change.key != "2"]
    desk.contacts.write(a1="Abe")
    resync(desk.sync, desk.ports(), Way(removes=True))
    desk.run()
    assert ("delete", 2, "Ben") in desk.api.take()


def test_what_is_kept_in_short_grows_with_the_keys_and_not_with_the_runs(desk):
    """A key's newest row is enough, and one that was deleted needs nothing."""
    a_life(desk)
    runs = desk.tracking.runs(SYNC)
    keep_sent(desk.sync, desk.tracking, through=runs[3])
    kept = desk.tracking.delivered_since(SYNC, None, upto=runs[3], with_payload=True)
    names = [(end.identifier, orjson.loads(end.payload)["name"]) for end in kept]
    assert [("1", "Ava"), ("2", "Ben")] == sorted(names)


def test_a_kill_between_the_two_leaves_nothing_twice(desk):
    """First what is kept in short is written, then the runs go; the next time goes on from there."""
    a_life(desk)
    runs = desk.tracking.runs(SYNC)
    keep_sent(desk.sync, desk.tracking, through=runs[2])
    desk.tracking.remove_run(SYNC, runs[0])
    ends = list(desk.tracking.delivered_since(SYNC, None))
    assert sorted([("1", runs[2]), ("2", runs[0]), ("1", runs[3]), ("1", runs[4])]) == sorted(
        (end.identifier, end.run_id) for end in ends
    )
    assert 3 == prune(desk).counts["runs"]
    assert [runs[4]] == list(desk.tracking.runs(SYNC))


def test_of_a_sync_whose_frontier_was_forgotten_all_records_stay(desk):
    """They are all that the resync, which it has to ask for now, can go by."""
    a_life(desk)
    forget(desk.sync, desk.tracking)
    assert 0 == prune(desk).counts["runs"]


def test_a_sync_at_work_is_left_for_the_next_time(desk):
    """It may be reading them."""
    a_life(desk)
    with desk.sync.open_queue():
        done = prune(desk)
    assert (0, True) == (done.counts["runs"], SYNC in done.did)


def test_a_sync_that_the_project_no_longer_has_is_pruned_too(desk):
    """Its records are in the log."""
    a_life(desk)
    assert 4 == prune(desk, syncs={}).counts["runs"]


def test_the_runs_of_another_project_in_the_same_place_stay(desk):
    """Its own maintain looks after them."""
    a_life(desk)
    theirs = TrackingStore(desk.records, workspace="theirs")
    log = SyncLog(read_settings(desk.state, {}), theirs)
    now = datetime.fromtimestamp(desk.now, UTC)
    assert 0 == retention.prune(theirs, log, {}, days=14, now=now).counts["runs"]


@pytest.mark.parametrize("batch_size", [100, 1])
def test_pruning_each_day_changes_nothing_of_what_is_known(desk, batch_size):
    """The short form is made of the short form before it."""
    desk.batch_size = batch_size
    for number in range(8):
        desk.contacts.write(**{f"a{number}": f"new {number}", "a1": f"Ada {number}"})
        desk.run()
        desk.now += 10 * DAY
        prune(desk)
        ends = desk.tracking.delivered_since(SYNC, None, with_payload=True)
        newest = {end.identifier: end.payload for end in ends}
        names = {str(key): name for key, (_, name) in desk.contacts.rows.items()}
        assert names == {key: orjson.loads(payload)["name"] for key, payload in newest.items()}
    assert 1 == len(desk.tracking.runs(SYNC))


def test_records_of_a_clock_that_was_ahead_go_in_their_time(desk):
    """Ids of later runs go on from there; when they began says their metadata."""
    desk.contacts.write(a1="Ada")
    desk.now += 3650 * DAY
    desk.run()
    desk.now -= 3650 * DAY
    for name in ("Ann", "Amy", "Ava"):
        desk.contacts.write(a1=name)
        desk.run()
        desk.now += 10 * DAY
    runs = desk.tracking.runs(SYNC)
    assert 2 == prune(desk, days=25).counts["runs"]
    assert 1 == prune(desk).counts["runs"]
    assert runs[3:] == desk.tracking.runs(SYNC)


def test_a_clock_that_is_behind_makes_no_record_older(desk):
    """Those of the right clock are ahead of it then."""
    a_life(desk)
    desk.now -= 3650 * DAY
    assert 0 == prune(desk).counts["runs"]
