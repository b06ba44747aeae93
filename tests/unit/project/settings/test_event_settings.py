"""The settings for events, in pyproject.toml and in variables."""

from pathlib import Path

import pytest

from ondatra_dagster.errors import SettingsError
from ondatra_dagster.project.settings.read_settings_and_defaults import EventSettings, read_settings


def events(root: Path, text: str = "", **variables: str) -> EventSettings:
    (root / "pyproject.toml").write_text(f"[tool.ondatra]\n{text}\n")
    return read_settings(root, variables).events


def test_limits_apply_without_a_setting(tmp_path: Path) -> None:
    """A collector with default settings can't fill the disk or the memory."""
    assert EventSettings() == events(tmp_path)
    assert (1_000_000, 10_000_000, 100_000_000) == (
        EventSettings().max_bytes,
        EventSettings().max_waiting,
        EventSettings().free_bytes,
    )


def test_settings_are_read_from_the_file(tmp_path: Path) -> None:
    event_settings = events(
        tmp_path,
        'events = { max_bytes = 5, unknown_fields = "refuse", per_second = "7",'
        ' origins = ["https://a.example", "https://b.example"] }',
    )
    assert (5, "refuse", 7, ("https://a.example", "https://b.example")) == (
        event_settings.max_bytes,
        event_settings.unknown_fields,
        event_settings.per_second,
        event_settings.origins,
    )


def test_a_variable_wins_over_the_file(tmp_path: Path) -> None:
    event_settings = events(
        tmp_path,
        "events.flush_seconds = 5",
        ONDATRA_EVENTS_FLUSH_SECONDS="90",
        ONDATRA_EVENTS_ORIGINS="https://a.example, *",
        ONDATRA_EVENTS_HOSTS="a.example, [fd00::1]",
    )
    assert ("a.example", "[fd00::1]") == event_settings.hosts
    assert (90, ("https://a.example", "*"), True) == (
        event_settings.flush_seconds,
        event_settings.origins,
        event_settings.allows_any_origin,
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("events.max_bytes = 0", "0 is not a number of 1 or more"),
        ('events.max_bytes = "1 MB"', "'1 MB' is not a number of 1 or more; write one, without a unit"),
        ("events.max_bytes = true", "True is not a number of 1 or more"),
        ('events.unknown_fields = "drop"', "events.unknown_fields can't be 'drop'"),
        ('events.origins = "shop.example.com"', "'shop.example.com' isn't a page's origin"),
        ('events.origins = ["https://a.example/path"]', "'https://a.example/path' isn't a page's origin"),
        ('events.hosts = "http://a.example"', "'http://a.example' isn't a host's name; write"),
        ('events.hosts = ["a.example:80"]', "'a.example:80' isn't a host's name"),
        ('events.token = "x"', "'events.token' is not a setting"),
    ],
)
def test_an_invalid_setting_is_refused_with_its_line(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(SettingsError, match=r"pyproject\.toml:2: ") as refused:
        events(tmp_path, text)
    assert says in str(refused.value)


def test_a_misspelled_token_variable_is_refused(tmp_path: Path) -> None:
    """Otherwise the collector would be open to everyone, and its operator would think that it is protected."""
    with pytest.raises(SettingsError, match=r"did you mean .ONDATRA_EVENTS_TOKEN.\?"):
        read_settings(tmp_path, {"ONDATRA_EVENT_TOKEN": "x"})
    assert "x" == read_settings(tmp_path, {"ONDATRA_EVENTS_TOKEN": "x"}).secret("ONDATRA_EVENTS_TOKEN")
