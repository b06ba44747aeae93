"""The limits of the collector, with a clock that the test sets."""

from pathlib import Path

from ondatra_dagster.collector.event_intake_and_model_reload import Backpressure
from ondatra_dagster.project.settings.read_settings_and_defaults import EventSettings


def test_a_sender_that_waits_for_retry_after_is_accepted(tmp_path: Path) -> None:
    """After a batch that uses the rate of a hundred seconds, a wait of one second would only bring the next refusal."""
    now = 0.0
    limits = Backpressure(EventSettings(per_second=10), tmp_path, count_pending=lambda: 0, clock=lambda: now)
    for events, seconds in ((10, 1), (1010, 101), (1, None), (19, 2)):
        limits.consume_allowance(events)
        refusal = limits.check_limits()
        assert (refusal and dict(refusal.response.headers)[b"retry-after"]) == (seconds and str(seconds).encode())
        if seconds:
            now += seconds
            assert limits.check_limits() is None
