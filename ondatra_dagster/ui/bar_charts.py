"""The bar charts of counts over runs, in SVG. A table or a text next to each chart has the same counts."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ondatra_dagster.ui.html_builder import Html, element

HEIGHT = 100
BAR_SPACING = 10  # the width of one run's bar with the space around it
BAR_WIDTH = 7
MIN_BAR_HEIGHT = 1.5  # so that every count above zero is visible
# bars are cut off if the highest exceeds the upper quartile this many times, so that the others stay visible
OUTLIER_FACTOR = 4


class Bar(NamedTuple):
    """The bar of one run, with its counts stacked from the bottom up."""

    counts: Mapping[str, int]  # CSS class → count
    title: str
    link: str | None = None

    @property
    def total(self) -> int:
        return sum(self.counts.values())


class Chart(NamedTuple):
    svg: Html
    max_value: int  # the count that a bar of the full height shows
    has_cut_bars: bool  # whether a bar has a count above max_value


def draw_bars(
    bars: Sequence[Bar], *, label: str, places: int, class_: str, min_height: float = MIN_BAR_HEIGHT
) -> Chart:
    """Draw stacked bars from left to right. A chart has room for `places` bars; the last places are used."""
    max_value = _scale_maximum([bar.total for bar in bars])
    offset = places - len(bars)
    svg = element(
        "svg",
        [
            _draw_bar(bar, _segment_heights(bar, max_value, min_height), max_value, BAR_SPACING * (offset + position))
            for position, bar in enumerate(bars)
        ],
        viewBox=f"0 0 {places * BAR_SPACING} {HEIGHT}",
        preserveAspectRatio="none",
        role="img",
        aria_label=label,
        class_=class_,
    )
    return Chart(svg, max_value, any(bar.total > max_value for bar in bars))


def _scale_maximum(totals: Sequence[int]) -> int:
    """Return the count for the full height: the highest total, or with outliers, twice the upper quartile."""
    nonzero_totals = sorted(total for total in totals if total)
    if not nonzero_totals:
        return 1
    upper_quartile = nonzero_totals[(len(nonzero_totals) - 1) * 3 // 4]
    return nonzero_totals[-1] if nonzero_totals[-1] <= OUTLIER_FACTOR * upper_quartile else 2 * upper_quartile


def _segment_heights(bar: Bar, top: int, min_height: float) -> dict[str, float]:
    """Return the height of each nonzero count in the bar.

    Small counts get a minimum height, which is taken from the largest count.
    """
    full_count = max(top, bar.total)  # a bar that is cut off still shows its counts in proportion
    heights = {name: max(min_height, HEIGHT * count / full_count) for name, count in bar.counts.items() if count}
    if heights:
        largest_name = max(heights, key=lambda name: heights[name])
        heights[largest_name] -= max(0.0, sum(heights.values()) - HEIGHT)
    return heights


def _draw_bar(bar: Bar, heights: Mapping[str, float], top: int, x_offset: float) -> Html:
    bar_left = x_offset + (BAR_SPACING - BAR_WIDTH) / 2
    shapes = [element("rect", x=x_offset, y=0, width=BAR_SPACING, height=HEIGHT, class_="place")]
    height = 0.0
    for name, segment_height in heights.items():
        height += segment_height
        shapes.append(
            element(
                "rect",
                x=bar_left,
                y=round(HEIGHT - height, 2),
                width=BAR_WIDTH,
                height=round(segment_height, 2),
                class_=name,
            )
        )
    if bar.total > top:
        shapes.append(element("rect", x=bar_left, y=8, width=BAR_WIDTH, height=3, class_="cut"))
    group = element("g", element("title", bar.title), shapes)
    # the Tab key skips the bars, because the table has the same links
    return element("a", group, href=bar.link, tabindex="-1") if bar.link else group
