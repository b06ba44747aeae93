"""Counts over runs as bars, made of SVG here. What they show stands beside as a table or in words."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ondatra_dagster.browser.elements import Html, element

HEIGHT = 100
WIDTH = 10  # of one run's place
BAR = 7
LEAST = 1.5  # what is there at all can be seen
TOWERS = 4  # a bar so many times higher than most is cut off, or else nothing is seen of the others


class Bar(NamedTuple):
    """One run's counts, from the bottom up."""

    parts: Mapping[str, int]  # class → count
    title: str
    link: str | None = None

    @property
    def total(self) -> int:
        return sum(self.parts.values())


class Chart(NamedTuple):
    drawn: Html
    top: int  # what a bar of the whole height stands for
    is_cut: bool  # whether a bar is higher than that


def bars(shown: Sequence[Bar], *, label: str, places: int, class_: str, least: float = LEAST) -> Chart:
    """Stacked bars, the first one leftmost, in so many places of which the last are filled."""
    top = _top([bar.total for bar in shown])
    offset = places - len(shown)
    drawn = element(
        "svg",
        [
            _bar(bar, _heights(bar, top, least), top, WIDTH * (offset + place))
            for place, bar in enumerate(shown)
        ],
        viewBox=f"0 0 {places * WIDTH} {HEIGHT}",
        preserveAspectRatio="none",
        role="img",
        aria_label=label,
        class_=class_,
    )
    return Chart(drawn, top, any(bar.total > top for bar in shown))


def _top(totals: Sequence[int]) -> int:
    """The highest bar; where a few tower above most, what most come to."""
    counted = sorted(total for total in totals if total)
    if not counted:
        return 1
    usual = counted[(len(counted) - 1) * 3 // 4]
    return counted[-1] if counted[-1] <= TOWERS * usual else 2 * usual


def _heights(bar: Bar, top: int, least: float) -> dict[str, float]:
    """Of its parts that have something; what the small ones need to be seen is the largest one's."""
    whole = max(top, bar.total)  # one that is cut off shows its shares
    heights = {name: max(least, HEIGHT * count / whole) for name, count in bar.parts.items() if count}
    if heights:
        largest = max(heights, key=lambda name: heights[name])
        heights[largest] -= max(0.0, sum(heights.values()) - HEIGHT)
    return heights


def _bar(bar: Bar, heights: Mapping[str, float], top: int, left: float) -> Html:
    x = left + (WIDTH - BAR) / 2
    drawn = [element("rect", x=left, y=0, width=WIDTH, height=HEIGHT, class_="place")]
    height = 0.0
    for name, part in heights.items():
        height += part
        drawn.append(
            element("rect", x=x, y=round(HEIGHT - height, 2), width=BAR, height=round(part, 2), class_=name)
        )
    if bar.total > top:
        drawn.append(element("rect", x=x, y=8, width=BAR, height=3, class_="cut"))
    group = element("g", element("title", bar.title), drawn)
    # the same link stands in the table: nobody has to step through the bars to get past them
    return element("a", group, href=bar.link, tabindex="-1") if bar.link else group
