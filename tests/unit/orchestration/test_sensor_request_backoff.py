"""The backoff of sensors. Requests at each tick would fill the disk while runs fail; giving up would lose rows."""

from ondatra_dagster.orchestration.sensor_request_backoff import SensorRequest, next_request


def test_new_work_is_requested_at_once() -> None:
    """A new version must not wait for the retries of the last one."""
    before = SensorRequest(work_digest="t@1", tries=5, requested_at=100)
    assert SensorRequest(work_digest="t@2", tries=1, requested_at=101) == next_request("t@2", before, now=101)
    assert SensorRequest(work_digest="t@1", tries=1, requested_at=7) == next_request("t@1", None, now=7)


def test_the_same_work_is_requested_less_and_less_often() -> None:
    """It is requested again after one minute, then five, then fifteen, like rows."""
    wake = SensorRequest(work_digest="t@1", tries=1, requested_at=0)
    assert next_request("t@1", wake, now=59) is None
    second = next_request("t@1", wake, now=60)
    assert SensorRequest(work_digest="t@1", tries=2, requested_at=60) == second
    assert next_request("t@1", second, now=60 + 299) is None
    assert SensorRequest(work_digest="t@1", tries=3, requested_at=360) == next_request("t@1", second, now=360)


def test_each_try_has_its_own_run_key() -> None:
    """Dagster never starts a second run for a run key, so a failed first run would be the last one."""
    keys = {SensorRequest(work_digest="t@1", tries=tries, requested_at=0).run_key("crm") for tries in (1, 2, 3)}
    assert {"crm:t@1#1@0", "crm:t@1#2@0", "crm:t@1#3@0"} == keys


def test_work_that_occurs_a_second_time_has_another_run_key() -> None:
    """A file is put back, or a change of a definition is undone. The old run's key would keep this work waiting."""
    first = next_request("a", None, now=0)
    second = next_request("b", first, now=100)
    third = next_request("a", second, now=200)
    assert first
    assert third
    assert ("crm:a#1@0", "crm:a#1@200") == (first.run_key("crm"), third.run_key("crm"))


def test_new_work_is_first_left_to_the_other_sensor() -> None:
    """The other sensor is informed of each new version. If both sensors started a run, it would be one too many."""
    request = next_request("t@1", None, now=0, is_new=True)
    assert SensorRequest(work_digest="t@1", tries=0, requested_at=0) == request
    assert next_request("t@1", request, now=59, is_new=True) is None
    assert SensorRequest(work_digest="t@1", tries=1, requested_at=60) == next_request(
        "t@1", request, now=60, is_new=True
    )


def test_work_does_not_wait_because_the_clock_was_ahead() -> None:
    """A request with a time in the future is made again. Four minutes are not a jump of the clock."""
    ahead = SensorRequest(work_digest="t@1", tries=9, requested_at=1_000_000)
    assert SensorRequest(work_digest="t@1", tries=10, requested_at=7) == next_request("t@1", ahead, now=7)
    assert next_request("t@1", ahead, now=1_000_000 - 240) is None
