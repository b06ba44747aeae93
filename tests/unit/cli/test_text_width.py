"""The width of a text on a terminal."""

import pytest

from ondatra_dagster.cli.output import (
    ColumnShrink,
    cut_text,
    display_width,
    pad_left,
    pad_right,
    print_table,
    shorten_text,
    shrink_columns,
)

COMBINED = "e\u0301"  # an e with a combining accent


@pytest.mark.parametrize(
    ("text", "width"),
    [
        ("", 0),
        ("Ada", 3),
        ("Zoë", 3),
        (f"Zo{COMBINED}", 3),
        ("日本", 4),
        ("ｱ", 1),  # a half-width katakana
        ("\uff21", 2),  # a full-width A
        ("한", 2),
        ("\u1112\u1161\u11ab", 2),  # the same character, decomposed
        ("👍", 2),
        ("🇩🇪", 2),
        ("…→·", 3),
    ],
)
def test_the_width_of_a_text_is_its_number_of_columns(text: str, width: int) -> None:
    """Python counts code points, and a terminal counts columns."""
    assert width == display_width(text)
    assert (f"{text}  |", f"  {text}|") == (pad_right(text, width + 2) + "|", pad_left(text, width + 2) + "|")


@pytest.mark.parametrize(
    ("text", "width", "expected"),
    [
        ("日本語", 6, "日本語"),
        ("日本語", 5, "日本…"),
        ("日本語", 4, "日…"),  # half a character can't be shown
        ("Ada Lovelace", 4, "Ada…"),
        (f"Zo{COMBINED} Ray", 4, f"Zo{COMBINED}…"),
        ("👍👍👍", 5, "👍👍…"),
    ],
)
def test_a_shortened_text_fits(text: str, width: int, expected: str) -> None:
    """A line that is one column too wide breaks the table below it."""
    assert expected == shorten_text(text, width)
    assert display_width(expected) <= width


def test_a_cut_text_has_as_many_characters_as_fit() -> None:
    """A line is redrawn in place: one column too many would remain on the screen."""
    assert ("日本", "日", "ab") == (cut_text("日本語", 5), cut_text("日本語", 3), cut_text("abc", 2))


def test_columns_with_wide_characters_are_aligned(capsys: pytest.CaptureFixture[str]) -> None:
    """A name in Japanese would move the rest of its line to the right."""
    print_table(("name", "n", "city"), [("山田", "1", "京都"), (f"Zo{COMBINED}", "12", "Ulm")])
    assert ["name   n  city", "山田   1  京都", f"Zo{COMBINED}   12  Ulm"] == capsys.readouterr().out.splitlines()


def test_a_table_with_wide_characters_fits_the_terminal() -> None:
    """The width of the characters counts, and not their number."""
    (row,) = shrink_columns(("id", "said"), [("1", "山" * 20)], width=20, shrinks=[ColumnShrink("said", 12)])
    assert ("1", "山" * 7 + "…") == tuple(row)
