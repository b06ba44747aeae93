"""Bars that are drawn here: what is there is seen, and what towers above all is cut off, and says so."""

import re

from ondatra_dagster.ui.bar_charts import HEIGHT, MIN_BAR_HEIGHT, Bar, Chart, draw_bars


def drawn(*shown: Bar) -> Chart:
    return draw_bars(shown, label="Rows", places=len(shown), class_="chart")


def heights(chart: Chart, series: str) -> list[float]:
    text = chart.svg.encode().decode()
    return [float(found) for found in re.findall(rf'height="([\d.]+)" class="{series}"', text)]


def test_bars_are_as_high_as_their_counts() -> None:
    chart = drawn(Bar({"succeeded": 10}, "1"), Bar({"succeeded": 5, "rejected": 5}, "2"), Bar({}, "3"))
    assert (10, False) == (chart.max_value, chart.has_cut_bars)
    assert ([100.0, 50.0], [50.0]) == (heights(chart, "succeeded"), heights(chart, "rejected"))


def test_a_single_reject_is_seen_beside_a_million() -> None:
    chart = drawn(Bar({"succeeded": 1_000_000, "rejected": 1, "failed": 1, "invalid": 1}, "1"))
    small = [heights(chart, name) for name in ("rejected", "failed", "invalid")]
    assert [[MIN_BAR_HEIGHT]] * 3 == small
    assert [HEIGHT - 3 * MIN_BAR_HEIGHT] == heights(chart, "succeeded")


def test_a_small_picture_shows_small_parts_larger() -> None:
    shown = [Bar({"succeeded": 1_000_000, "rejected": 1}, "1")]
    chart = draw_bars(shown, label="Rows", places=1, class_="sparkline", least=8)
    assert ([92.0], [8.0]) == (heights(chart, "succeeded"), heights(chart, "rejected"))


def test_a_bar_that_is_cut_off_shows_its_shares() -> None:
    """Else its rejects would be above the edge, where nobody sees them."""
    chart = drawn(
        Bar({"succeeded": 3_000_000, "rejected": 1_000_000}, "1"), *(Bar({"succeeded": 100}, str(n)) for n in range(9))
    )
    assert (75.0, [25.0]) == (heights(chart, "succeeded")[0], heights(chart, "rejected"))


def test_a_first_run_does_not_flatten_all_others() -> None:
    """It sends the whole table, the others a few rows."""
    chart = drawn(Bar({"succeeded": 1_000_000}, "1"), *(Bar({"succeeded": 100}, str(n)) for n in range(9)))
    assert (200, True) == (chart.max_value, chart.has_cut_bars)
    assert [100.0, *[50.0] * 9] == heights(chart, "succeeded")
    assert b'class="cut"' in chart.svg.encode()


def test_runs_without_rows_are_no_fault() -> None:
    assert (1, False) == drawn(Bar({"succeeded": 0}, "1"))[1:]
    assert (1, False) == drawn()[1:]


def test_a_bar_says_what_it_is_and_leads_to_its_run() -> None:
    """By the mouse; by the keyboard the table has the same link."""
    text = drawn(Bar({"succeeded": 1}, "<run>", "/syncs/a/runs/b")).svg.encode().decode()
    assert "<title>&lt;run&gt;</title>" in text
    assert '<a href="/syncs/a/runs/b" tabindex="-1">' in text
    assert 'role="img" aria-label="Rows"' in text
