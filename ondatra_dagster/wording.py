"""How numbers stand in sentences. Else what a sentence says belongs where it is said."""


def count(number: int, word: str) -> str:
    """1 row, 2 rows."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def set_aside(rows: int) -> str:
    """What a model's check and its sink's say of rows that can't be told apart."""
    return f"{count(rows, 'row')} set aside, without a key of {'its' if rows == 1 else 'their'} own"


def misfits_set_aside(events: int) -> str:
    """The same of events that came before their model was changed."""
    return f"{count(events, 'event')} set aside, which came before the columns were changed"
