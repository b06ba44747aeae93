"""A sensor that asks for a run at each tick while runs fail fills a disk; one that gives up loses rows."""

from ondatra_dagster.orchestration.sensor_request_backoff import SensorRequest, next_request


def test_new_work_is_asked_for_at_once() -> None:
    """A new version shouldn't wait for the last one's retries."""
    before = SensorRequest(work_digest="t@1", tries=5, requested_at=100)
    assert SensorRequest(work_digest="t@2", tries=1, requested_at=101) == next_request("t@2", before, now=101)
    assert SensorRequest(work_digest="t@1", tries=1, requested_at=7) == next_request("t@1", None, now=7)


def test_the_same_work_is_asked_for_ever_less_often() -> None:
    """After one minute, then five, then fifteen, as rows are."""
    wake = SensorRequest(work_digest="t@1", tries=1, requested_at=0)
    assert next_request("t@1", wake, now=59) is None
    second = next_request("t@1", wake, now=60)
    assert SensorRequest(work_digest="t@1", tries=2, requested_at=60) == second
    assert next_request("t@1", second, now=60 + 299) is None
    assert SensorRequest(work_digest="t@1", tries=3, requested_at=360) == next_request("t@1", second, now=360)


def test_each_try_has_a_run_key_of_its_own() -> None:
    """Dagster never starts a second run for a key: a failed first one would be the last."""
    keys = {SensorRequest(work_digest="t@1", tries=tries, requested_at=0).run_key("crm") for tries in (1, 2, 3)}
    assert {"crm:t@1#1@0", "crm:t@1#2@0", "crm:t@1#3@0"} == keys


def test_work_that_comes_back_has_another_run_key() -> None:
    """A file that is put back, a definition that is undone: the old run's key would keep it waiting."""
    first = next_request("a", None, now=0)
    second = next_request("b", first, now=100)
    third = next_request("a", second, now=200)
    assert first
    assert third
    assert ("crm:a#1@0", "crm:a#1@200") == (first.run_key("crm"), third.run_key("crm"))


def test_what_is_new_is_left_to_the_sensor_that_hears_of_it() -> None:
    """Two sensors that start a run each for one version would be one too many."""
    seen = next_request("t@1", None, now=0, is_new=True)
    assert SensorRequest(work_digest="t@1", tries=0, requested_at=0) == seen
    assert next_request("t@1", seen, now=59, is_new=True) is None
    assert SensorRequest(work_digest="t@1", tries=1, requested_at=60) == next_request("t@1", seen, now=60, is_new=True)


def test_a_clock_that_was_ahead_keeps_no_work_waiting() -> None:
    """What was asked for by that clock is asked for again; four minutes are no jump."""
    ahead = SensorRequest(work_digest="t@1", tries=9, requested_at=1_000_000)
    assert SensorRequest(work_digest="t@1", tries=10, requested_at=7) == next_request("t@1", ahead, now=7)
    assert next_request("t@1", ahead, now=1_000_000 - 240) is None
