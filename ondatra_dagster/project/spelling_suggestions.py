"""The suggestion of the known word that is nearest to a misspelt one, for messages."""

import difflib
from collections.abc import Iterable

MAX_LISTED = 20  # the maximum number of names that a message lists


def find_nearest(word: str, known_words: Iterable[str], *, likeness: float = 0.6) -> str | None:
    """Return the known word that is most similar to `word`, without regard to case; None if no word is similar."""
    names_by_casefold = {candidate.casefold(): candidate for candidate in known_words}
    matches = difflib.get_close_matches(word.casefold(), names_by_casefold, n=1, cutoff=likeness)
    return names_by_casefold[matches[0]] if matches else None


def suggest_correction(word: str, known_words: Iterable[str], *, plural: str) -> str:
    """Return a text that lists the known words, and suggests the one nearest to `word` if there is one."""
    names = sorted(known_words)
    if not names:
        return f"there are no {plural} yet"
    ellipsis = ", …" if len(names) > MAX_LISTED else ""
    name_list = f"the {plural} are {', '.join(names[:MAX_LISTED])}{ellipsis}"
    guess = find_nearest(word, names)
    return f"did you mean {guess!r}? {name_list}" if guess else name_list
