"""The answers that are retried, and the delay before each retry."""

import pytest

from ondatra_dagster.delivery.http.request_retry_delays import parse_retry_after, request_retry_seconds
from ondatra_dagster.delivery.http.response_status_and_body_decoding import HttpResponse

NOW = 1_792_324_800.0  # Sun, 18 Oct 2026 12:00:00 GMT


@pytest.mark.parametrize(
    ("status", "expected"),
    [(0, True), (408, True), (429, True), (500, True), (503, True), (200, False), (301, False), (404, False)],
)
def test_only_a_temporary_failure_is_retried(status: int, *, expected: bool) -> None:
    """A 404 would stay a 404."""
    assert expected == HttpResponse(status, "").is_retryable


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("7", 7.0),
        (" 0 ", 0.0),
        ("3600", 60.0),
        ("Sun, 18 Oct 2026 12:00:09 GMT", 9.0),
        ("Sun, 18 Oct 2026 11:59:00 GMT", 0.0),
        ("Sun, 18 Oct 2026 13:00:00 GMT", 60.0),
        ("Sun, 18 Oct 2026 12:00:09 -0000", 9.0),
        ("Sun, 99 Zzz 2026 99:99:99 GMT", None),
        ("5, 7", None),
        ("1e999", None),
        ("soon", None),
        ("Sun, 18 Oct 2026 12:00:09 +99999999999999999999", None),
        ("Sun, 18 Oct 2026 12:00:09 +9999", None),
        ("Sat, 01 Jan 0001 00:00:00 +2300", 0.0),
        ("Sun, 18 Oct 99999 12:00:09 GMT", None),
        ("9" * 400, 60.0),
        ("-5", None),
        ("1.5", None),
        ("²", None),
        ("", None),
        (None, None),
    ],
)
def test_retry_after_is_understood_in_both_forms(header: str | None, expected: float | None) -> None:
    """A retry waits a minute at most, and a value that can't be read is ignored."""
    assert expected == parse_retry_after(header, now=NOW)


def test_the_delay_doubles_and_varies() -> None:
    """Clients that failed at the same time must not retry at the same time."""

    def wait(tries: int, random: float) -> float:
        return request_retry_seconds(tries, backoff_seconds=2, retry_after=None, now=NOW, random=lambda: random)

    assert [2.0, 4.0, 8.0] == [wait(tries, 0.5) for tries in (1, 2, 3)]
    assert [1.0, 3.0] == [wait(1, 0.0), wait(1, 1.0)]
    assert [90.0, 90.0] == [wait(tries, 1.0) for tries in (1_000, 100_000)]


def test_retry_after_replaces_the_backoff() -> None:
    """It does so even if it is shorter."""
    assert 1.0 == request_retry_seconds(5, backoff_seconds=9, retry_after="1", now=NOW, random=lambda: 0.5)
