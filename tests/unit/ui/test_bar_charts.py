"""The bar charts. Small counts remain visible, and much higher bars are marked as cut off."""

import re

from ondatra_dagster.ui.bar_charts import HEIGHT, MIN_BAR_HEIGHT, Bar, Chart, draw_bars


def drawn(*shown: Bar) -> Chart:
    return draw_bars(shown, label="Rows", places=len(shown), class_="chart")


def heights(chart: Chart, series: str) -> list[float]:
    text = chart.svg.encode().decode()
    return [float(height) for height in re.findall(rf'height="([\d.]+)" class="{series}"', text)]


def test_the_height_of_a_bar_is_its_count() -> None:
    chart = drawn(Bar({"succeeded": 10}, "1"), Bar({"succeeded": 5, "rejected": 5}, "2"), Bar({}, "3"))
    assert (10, False) == (chart.max_value, chart.has_cut_bars)
    assert ([100.0, 50.0], [50.0]) == (heights(chart, "succeeded"), heights(chart, "rejected"))


def test_a_single_reject_next_to_a_million_rows_is_visible() -> None:
    chart = drawn(Bar({"succeeded": 1_000_000, "rejected": 1, "failed": 1, "invalid": 1}, "1"))
    small = [heights(chart, name) for name in ("rejected", "failed", "invalid")]
    assert [[MIN_BAR_HEIGHT]] * 3 == small
    assert [HEIGHT - 3 * MIN_BAR_HEIGHT] == heights(chart, "succeeded")


def test_a_small_chart_makes_small_counts_larger() -> None:
    shown = [Bar({"succeeded": 1_000_000, "rejected": 1}, "1")]
    chart = draw_bars(shown, label="Rows", places=1, class_="sparkline", min_height=8)
    assert ([92.0], [8.0]) == (heights(chart, "succeeded"), heights(chart, "rejected"))


def test_a_cut_bar_shows_its_shares() -> None:
    """Otherwise its rejects would be above the edge, where the user doesn't see them."""
    chart = drawn(
        Bar({"succeeded": 3_000_000, "rejected": 1_000_000}, "1"), *(Bar({"succeeded": 100}, str(n)) for n in range(9))
    )
    assert (75.0, [25.0]) == (heights(chart, "succeeded")[0], heights(chart, "rejected"))


def test_the_first_run_does_not_flatten_all_other_bars() -> None:
    """The first run sends the whole table, and later runs send a few rows."""
    chart = drawn(Bar({"succeeded": 1_000_000}, "1"), *(Bar({"succeeded": 100}, str(n)) for n in range(9)))
    assert (200, True) == (chart.max_value, chart.has_cut_bars)
    assert [100.0, *[50.0] * 9] == heights(chart, "succeeded")
    assert b'class="cut"' in chart.svg.encode()


def test_runs_without_rows_can_be_drawn() -> None:
    assert (1, False) == drawn(Bar({"succeeded": 0}, "1"))[1:]
    assert (1, False) == drawn()[1:]


def test_a_bar_has_a_title_and_a_link_to_its_run() -> None:
    """The link is for the mouse. For the keyboard the table has the same link."""
    text = drawn(Bar({"succeeded": 1}, "<run>", "/syncs/a/runs/b")).svg.encode().decode()
    assert "<title>&lt;run&gt;</title>" in text
    assert '<a href="/syncs/a/runs/b" tabindex="-1">' in text
    assert 'role="img" aria-label="Rows"' in text
