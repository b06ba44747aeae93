"""The journal of a frozen batch: it stores each HTTP response, so that a crash doesn't send its call again.

Each line is one write to an append-only file, so it survives the end of the process without an fsync. The last word
of a line is its checksum. A crash during a write leaves a torn last line, which is ignored. A damaged line is
ignored too, with all lines after it.

A re-run of the same batch makes the same calls in the same order. The journal answers the calls whose responses it
has. A call that was under way has no line: it is sent again with the same idempotency key.

When the machine itself goes down, lines may be lost. Then a call is sent twice, but never left out.
"""

import hashlib
import itertools
import os
import re
import zlib
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Self

import orjson

from ondatra_dagster.delivery.http.response_status_and_body_decoding import HttpResponse
from ondatra_dagster.storage.file_errors import explain_file_errors

_PUSH_START = "begun"


class CallKey(NamedTuple):
    """The place of one call in the journal: its request, and how many calls before it had the same request."""

    digest: str  # a digest: the journal has no addresses and no bodies
    occurrence: int


class ResponseJournal:
    """The journal of one batch at a time. After a batch it is used for the next one. One thread at a time uses it."""

    def __init__(self, path: Path | None, batch_key: str) -> None:
        self._path = path
        self._file: int | None = None
        self._reset(batch_key)
        if path:
            self._open(path)

    def _reset(self, batch_key: str) -> None:
        self.batch_key = batch_key
        # how often push got a batch, by the batch's id: parts of a split batch share a journal
        self.push_starts: Counter[int] = Counter()
        self.is_rerun = False  # True: a process that crashed may have sent a call that has no response here
        self._responses: dict[CallKey, HttpResponse] = {}
        self._failures: Counter[CallKey] = Counter()
        self._settled_counts: Counter[str] = Counter()  # calls of the settled parts of the batch
        self._call_counts: Counter[str] = Counter()

    @classmethod
    def open(cls, path: Path, batch_key: str) -> Self:
        """Open the journal of the batch with this key; delete what another batch left at `path`."""
        with explain_file_errors(path):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            return cls(path, batch_key)

    @classmethod
    def in_memory(cls, batch_key: str) -> Self:
        """Return a journal in memory only, for calls outside of any batch."""
        return cls(None, batch_key)

    def begin_batch(self, batch_key: str, batch: int) -> None:
        """Record that push gets the batch with this id. Delete the responses first if they are another batch's.

        The file stays open, because ext4 writes an emptied file to the disk at once when it is closed.
        """
        if batch_key == self.batch_key:
            self.push_starts[batch] += 1
            self._write([_PUSH_START, batch])
            return
        self._reset(batch_key)
        self.push_starts[batch] = 1
        if self._path and self._file is not None:
            with explain_file_errors(self._path):
                os.ftruncate(self._file, 0)
            self._write([batch_key], [_PUSH_START, batch])

    @property
    def response_count(self) -> int:
        """Return how many calls of the batch have a response."""
        return len(self._responses)

    def restart_calls(self) -> None:
        """Set the count of calls back, for a new attempt: only calls of the batch's settled parts are counted."""
        self._call_counts = self._settled_counts.copy()

    def next_call_key(self, request: str) -> CallKey:
        """Return the place of the next call with this request."""
        call_key = CallKey(request, self._call_counts[request])
        self._call_counts[request] += 1
        return call_key

    def find_response(self, call_key: CallKey) -> HttpResponse | None:
        """Return the call's response from before the crash; None if it had none."""
        return self._responses.get(call_key)

    def idempotency_key(self, call_key: CallKey) -> str:
        """Return the idempotency key of a call. It stays the same, also after a crash, until a failure is recorded."""
        parts = (self.batch_key, call_key.digest, str(call_key.occurrence), str(self._failures[call_key]))
        return hashlib.blake2b(" ".join(parts).encode(), digest_size=16).hexdigest()

    def record_failure(self, call_key: CallKey) -> None:
        """Record that the server's answer was a failure, and that the call will be retried."""
        self._failures[call_key] += 1
        self._write([call_key.digest, call_key.occurrence])

    def record_response(self, call_key: CallKey, response: HttpResponse) -> None:
        """Record the final response of a call."""
        self._responses[call_key] = response
        fields = (response.status_code, response.text, response.headers, response.is_refused, response.is_uncertain)
        self._write([call_key.digest, call_key.occurrence, *fields])

    def record_settled(self) -> None:
        """Record that the rows of all calls up to now are settled, so that these calls won't be made again."""
        new_counts = self._call_counts - self._settled_counts
        self._settled_counts = self._call_counts.copy()
        if new_counts:
            self._write(["settled", dict(new_counts)])

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def discard(self) -> None:
        """Delete the journal's file, because its batch is settled as a whole."""
        self.close()
        if self._path:
            with explain_file_errors(self._path):
                self._path.unlink(missing_ok=True)

    def _open(self, path: Path) -> None:
        valid_length = self._load(path)
        self._file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o600)
        os.ftruncate(self._file, valid_length)
        self.is_rerun = valid_length > 0
        if not valid_length:
            self._write([self.batch_key])

    def _write(self, *lines: list[object]) -> None:
        if self._path is None or self._file is None:
            return
        text = b"".join([_encode_line(fields) for fields in lines])
        with explain_file_errors(self._path):
            while text:
                text = text[os.write(self._file, text) :]

    def _load(self, path: Path) -> int:
        """Load what an earlier process wrote; return how many bytes are intact."""
        if not path.exists():
            return 0
        content = path.read_bytes()
        lines = _decode_lines(content)
        if next(lines, (0, None))[1] != [self.batch_key]:
            return 0
        valid_length = content.index(b"\n") + 1
        for end, fields in lines:
            self._apply_fields(fields)
            valid_length = end
        self.restart_calls()
        return valid_length

    def _apply_fields(self, fields: list[Any]) -> None:
        match fields:
            case ["settled", dict(counts)]:
                self._settled_counts.update(counts)
            case ["begun", int(batch)]:
                self.push_starts[batch] += 1
            case [str(request), int(occurrence)]:
                self._failures[CallKey(request, occurrence)] += 1
            case [str(request), int(occurrence), status, text, headers, is_refused, is_uncertain]:
                self._responses[CallKey(request, occurrence)] = HttpResponse(
                    status, text, headers, is_refused, is_uncertain
                )


def _encode_line(fields: list[object]) -> bytes:
    text = orjson.dumps(fields)
    return b"%b %08x\n" % (text, zlib.crc32(text))


def _decode_lines(content: bytes) -> Iterator[tuple[int, list[Any]]]:
    """Yield each intact line with the offset of its end, up to the first damaged line."""
    end = 0
    for line in content.splitlines(keepends=True):
        end += len(line)
        text = line.rpartition(b" ")[0]
        if line != b"%b %08x\n" % (text, zlib.crc32(text)):
            return
        yield end, orjson.loads(text)


def read_batch_key(path: Path) -> str | None:
    """Return the key of the batch whose journal is at `path`; None if the file's first line is damaged."""
    with explain_file_errors(path), path.open("rb") as file:
        line = file.readline()
    _, fields = next(_decode_lines(line), (0, []))
    return str(fields[0]) if len(fields) == 1 else None


def digest_request(method: str, url: str, body: bytes) -> str:
    """Return a digest of a request, which distinguishes it from other requests of its batch."""
    return hashlib.blake2b(b"\n".join((method.encode(), url.encode(), body)), digest_size=12).hexdigest()


class JournalPool:
    """A pool of journals, one for each batch in flight, in the files `path`, `path`-1, `path`-2 …"""

    def __init__(self, path: Path, batch_keys: Collection[str]) -> None:
        self._path = path
        self._by_batch_key: dict[str, ResponseJournal] = {}
        self._unused_journals: list[ResponseJournal] = []
        for file in _journal_files(path):
            batch_key = read_batch_key(file)
            if batch_key and batch_key in batch_keys:
                self._by_batch_key[batch_key] = ResponseJournal.open(file, batch_key)
            else:
                with explain_file_errors(file):
                    file.unlink()

    def journal_for(self, batch_key: str) -> ResponseJournal:
        """Return the journal of the batch with this key: one that a crashed process left, or an unused one."""
        if batch_key not in self._by_batch_key:
            journal = self._unused_journals.pop() if self._unused_journals else self._new_journal()
            self._by_batch_key[batch_key] = journal
        return self._by_batch_key[batch_key]

    def find_journal(self, batch_key: str) -> ResponseJournal | None:
        """Return the journal that a crashed process left of this batch; None if push never got the batch."""
        return self._by_batch_key.get(batch_key)

    def release_journal(self, batch_key: str) -> None:
        """Make the journal of a batch unused, because the batch is settled as a whole."""
        self._unused_journals.append(self._by_batch_key.pop(batch_key))

    def close(self) -> None:
        """Delete the unused journals, because responses contain personal data; keep those of unsettled batches."""
        for journal in self._by_batch_key.values():
            journal.close()
        for journal in self._unused_journals:
            journal.discard()

    def _new_journal(self) -> ResponseJournal:
        numbered_paths = (self._path.with_name(f"{self._path.name}-{number}") for number in itertools.count(1))
        files = itertools.chain([self._path], numbered_paths)
        return ResponseJournal.open(next(file for file in files if not file.exists()), "")


def _journal_files(path: Path) -> Iterator[Path]:
    name_pattern = re.compile(re.escape(path.name) + r"(-\d+)?")
    if path.parent.exists():
        with explain_file_errors(path.parent):
            files = list(path.parent.iterdir())
        yield from [file for file in files if name_pattern.fullmatch(file.name)]
