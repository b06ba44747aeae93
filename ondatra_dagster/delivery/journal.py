"""The journal of a frozen batch: each HTTP answer as it comes, so that a crash doesn't send its call again.

A line is one write to an append-only file, which outlives the process without an fsync. A crash amid a write
leaves a torn last line, which counts for nothing; nor does a line whose checksum, its last word, shows that
it is damaged, with all that follow it. A re-run of the same batch makes the same calls in the same
order: each is answered from here as far as the journal goes. A call that was under way has no line: it is
sent again under the same idempotency key.

When the machine itself goes down, lines may be lost: then a call is sent twice, never left out.
"""

import hashlib
import os
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Self

import orjson

from ondatra_dagster.store.file_errors import explained

_BEGUN = "begun"


class Answered(NamedTuple):
    """A final answer, as the journal keeps it."""

    status_code: int
    text: str
    headers: dict[str, str]
    refused: bool = False  # it couldn't be taken as it came
    uncertain: bool = False  # an earlier try may have been taken


class Slot(NamedTuple):
    """One call's place in the journal: the n-th with this request."""

    request: str  # a digest: neither addresses nor bodies are kept
    occurrence: int


class Journal:
    """The answers of one batch, and then of the next. One thread at a time uses it."""

    seed: str
    begun: Counter[int]  # how often push was given a batch, by its id: parts of a batch share a journal
    is_rerun: bool  # a call without an answer may have been sent by the process that died
    _answers: dict[Slot, Answered]
    _failures: Counter[Slot]
    _settled: Counter[str]  # calls of parts of the batch that have ended
    _seen: Counter[str]

    def __init__(self, path: Path | None, seed: str) -> None:
        self._path = path
        self._file: int | None = None
        self._forget(seed)
        if path:
            self._open(path)

    @classmethod
    def open(cls, path: Path, seed: str) -> Self:
        """The journal of the batch with this seed; what another batch left at `path` is dropped at once."""
        with explained(path):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            return cls(path, seed)

    @classmethod
    def in_memory(cls, seed: str) -> Self:
        """A journal that ends with the process, for who has no batch to keep."""
        return cls(None, seed)

    def begin_batch(self, seed: str, batch: int) -> None:
        """Push is given the batch of this id: from now on be its journal; that of another seed is dropped.

        The file stays open: one that is closed after it was emptied is written out there and then by ext4.
        """
        if seed == self.seed:
            self.begun[batch] += 1
            self._write([_BEGUN, batch])
            return
        self._forget(seed)
        self.begun[batch] = 1
        if self._path and self._file is not None:
            with explained(self._path):
                os.ftruncate(self._file, 0)
            self._write([seed], [_BEGUN, batch])

    @property
    def answered(self) -> int:
        """How many calls of the batch have their answer."""
        return len(self._answers)

    def begin(self) -> None:
        """Another go at the part of the batch that isn't settled: its calls are counted from there again."""
        self._seen = self._settled.copy()

    def next_slot(self, request: str) -> Slot:
        """The place of the next call with this request."""
        slot = Slot(request, self._seen[request])
        self._seen[request] += 1
        return slot

    def answer(self, slot: Slot) -> Answered | None:
        """What the call was answered before the crash."""
        return self._answers.get(slot)

    def idempotency_key(self, slot: Slot) -> str:
        """The same while a call gets no answer, also after a crash; a new one after each answered failure."""
        parts = (self.seed, slot.request, str(slot.occurrence), str(self._failures[slot]))
        return hashlib.blake2b(" ".join(parts).encode(), digest_size=16).hexdigest()

    def note_failure(self, slot: Slot) -> None:
        """The server has answered that it failed, and the call is going to be tried again."""
        self._failures[slot] += 1
        self._write([slot.request, slot.occurrence])

    def note_answer(self, slot: Slot, answered: Answered) -> None:
        """The call has ended with this answer."""
        self._answers[slot] = answered
        self._write([slot.request, slot.occurrence, *answered])

    def note_settled(self) -> None:
        """What the calls since the last time were made for is settled: it won't be run again."""
        new = self._seen - self._settled
        self._settled = self._seen.copy()
        if new:
            self._write(["settled", dict(new)])

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def discard(self) -> None:
        """The batch is settled as a whole: nothing of it is needed any more."""
        self.close()
        if self._path:
            with explained(self._path):
                self._path.unlink(missing_ok=True)

    def _forget(self, seed: str) -> None:
        self.seed = seed
        self.begun = Counter()
        self.is_rerun = False
        self._answers = {}
        self._failures = Counter()
        self._settled = Counter()
        self._seen = Counter()

    def _open(self, path: Path) -> None:
        good = self._load(path)
        self._file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o600)
        os.ftruncate(self._file, good)
        self.is_rerun = good > 0
        if not good:
            self._write([self.seed])

    def _write(self, *lines: list[object]) -> None:
        if self._path is None or self._file is None:
            return
        text = b"".join([_line(fields) for fields in lines])
        with explained(self._path):
            while text:
                text = text[os.write(self._file, text) :]

    def _load(self, path: Path) -> int:
        """Take in what an earlier process wrote; how many bytes of it are good."""
        if not path.exists():
            return 0
        content = path.read_bytes()
        lines = _lines(content)
        if next(lines, (0, None))[1] != [self.seed]:
            return 0
        good = content.index(b"\n") + 1
        for end, fields in lines:
            self._take(fields)
            good = end
        self.begin()
        return good

    def _take(self, fields: list[Any]) -> None:
        match fields:
            case ["settled", dict(counts)]:
                self._settled.update(counts)
            case ["begun", int(batch)]:
                self.begun[batch] += 1
            case [str(request), int(occurrence)]:
                self._failures[Slot(request, occurrence)] += 1
            case [str(request), int(occurrence), *answered] if len(answered) == len(Answered._fields):
                self._answers[Slot(request, occurrence)] = Answered(*answered)


def _line(fields: list[object]) -> bytes:
    text = orjson.dumps(fields)
    return b"%b %08x\n" % (text, zlib.crc32(text))


def _lines(content: bytes) -> Iterator[tuple[int, list[Any]]]:
    """Each whole line with the offset of its end, up to the first that isn't as it was written."""
    end = 0
    for line in content.splitlines(keepends=True):
        end += len(line)
        text = line.rpartition(b" ")[0]
        if line != b"%b %08x\n" % (text, zlib.crc32(text)):
            return
        yield end, orjson.loads(text)


def seed_at(path: Path) -> str | None:
    """Of which batch the journal at `path` is."""
    with explained(path), path.open("rb") as file:
        line = file.readline()
    _, fields = next(_lines(line), (0, []))
    return str(fields[0]) if len(fields) == 1 else None


def request_digest(method: str, url: str, body: bytes) -> str:
    """What tells one request of a batch from another."""
    return hashlib.blake2b(b"\n".join((method.encode(), url.encode(), body)), digest_size=12).hexdigest()
