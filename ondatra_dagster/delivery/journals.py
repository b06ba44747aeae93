"""The journals of the batches that are on their way: a file each, used again when its batch is settled."""

import itertools
import re
from collections.abc import Collection, Iterator
from pathlib import Path

from ondatra_dagster.delivery.journal import Journal, seed_at
from ondatra_dagster.store.file_errors import explained


class Journals:
    """The files `path`, `path`-1, `path`-2 …, as many as there are batches on their way at once."""

    def __init__(self, path: Path, seeds: Collection[str]) -> None:
        self._path = path
        self._held: dict[str, Journal] = {}  # by seed
        self._free: list[Journal] = []
        for file in _files(path):
            seed = seed_at(file)
            if seed and seed in seeds:
                self._held[seed] = Journal.open(file, seed)
            else:
                with explained(file):
                    file.unlink()

    def of(self, seed: str) -> Journal:
        """The journal of the batch with this seed: what a dead owner left of it, or one that is free."""
        if seed not in self._held:
            self._held[seed] = self._free.pop() if self._free else self._new()
        return self._held[seed]

    def known(self, seed: str) -> Journal | None:
        """What a dead owner left of the batch with this seed; None: push has never been given it."""
        return self._held.get(seed)

    def free(self, seed: str) -> None:
        """The batch is settled as a whole: nothing of its journal is needed any more."""
        self._free.append(self._held.pop(seed))

    def close(self) -> None:
        """Leave what is on disk of batches that aren't settled: answers hold people's data."""
        for journal in self._held.values():
            journal.close()
        for journal in self._free:
            journal.discard()

    def _new(self) -> Journal:
        numbered = (self._path.with_name(f"{self._path.name}-{number}") for number in itertools.count(1))
        files = itertools.chain([self._path], numbered)
        return Journal.open(next(file for file in files if not file.exists()), "")


def _files(path: Path) -> Iterator[Path]:
    numbered = re.compile(re.escape(path.name) + r"(-\d+)?")
    if path.parent.exists():
        with explained(path.parent):
            files = list(path.parent.iterdir())
        yield from [file for file in files if numbered.fullmatch(file.name)]
