"""The nearest right word to a wrong one, as messages say it."""

import difflib
from collections.abc import Iterable

MAX_LISTED = 20  # how many names a message can hold


def find_nearest(word: str, known: Iterable[str], *, likeness: float = 0.6) -> str | None:
    """The known word that looks most like `word`, without regard to case; None when none looks like it."""
    spelled = {candidate.casefold(): candidate for candidate in known}
    found = difflib.get_close_matches(word.casefold(), spelled, n=1, cutoff=likeness)
    return spelled[found[0]] if found else None


def suggest_correction(word: str, known: Iterable[str], *, plural: str) -> str:
    """What to write instead of `word`: the nearest known one, and the whole list."""
    names = sorted(known)
    if not names:
        return f"there are no {plural} yet"
    more = ", …" if len(names) > MAX_LISTED else ""
    listed = f"the {plural} are {', '.join(names[:MAX_LISTED])}{more}"
    guess = find_nearest(word, names)
    return f"did you mean {guess!r}? {listed}" if guess else listed
