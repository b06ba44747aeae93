"""How numbers stand in sentences. Nothing else: what a sentence says belongs where it is said."""


def count(number: int, word: str) -> str:
    """1 row, 2 rows."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
