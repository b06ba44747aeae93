"""The journal of responses: after a crash, an answered call isn't sent again."""

import contextlib
import dataclasses
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.files.unwritable_disks import limit_file_size

from ondatra_dagster.delivery.http.response_status_and_body_decoding import HttpResponse
from ondatra_dagster.delivery.response_journal import CallKey, ResponseJournal, digest_request
from ondatra_dagster.errors import DiskFullError, StateError

ANSWER_AND_DIE = """
import os, pathlib, signal, sys
from ondatra_dagster.delivery.http.response_status_and_body_decoding import HttpResponse
from ondatra_dagster.delivery.response_journal import ResponseJournal
journal = ResponseJournal.open(pathlib.Path(sys.argv[1]), "seed")
for _ in range(int(sys.argv[2])):
    journal.record_response(journal.next_call_key("a"), HttpResponse(201, "", {}))
os.kill(os.getpid(), signal.SIGKILL)
"""
ANSWER = HttpResponse(201, '{"id": 1}', {"location": "/c/1"})


@contextlib.contextmanager
def journal_of(path: Path, seed: str = "seed") -> Iterator[ResponseJournal]:
    journal = ResponseJournal.open(path, seed)
    try:
        yield journal
    finally:
        journal.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "queue" / "crm.journal"


def test_the_journal_answers_the_calls_of_the_same_batch(path: Path) -> None:
    """The stored answer is returned unchanged."""
    with journal_of(path) as journal:
        journal.record_response(journal.next_call_key("a"), ANSWER)

    with journal_of(path) as journal:
        assert ANSWER == journal.find_response(journal.next_call_key("a"))
        assert journal.response_count == 1


def test_equal_calls_are_distinguished_by_their_order(path: Path) -> None:
    """Two equal rows are two calls, and only the first was answered."""
    with journal_of(path) as journal:
        journal.record_response(journal.next_call_key("a"), ANSWER)

    with journal_of(path) as journal:
        assert [ANSWER, None] == [journal.find_response(journal.next_call_key("a")) for _ in range(2)]


def test_another_batch_starts_with_an_empty_journal(path: Path) -> None:
    """Its equal calls are new: a row that gets an old value again has to be sent."""
    with journal_of(path) as journal:
        journal.record_response(journal.next_call_key("a"), ANSWER)

    with journal_of(path, "another") as journal:
        assert journal.find_response(journal.next_call_key("a")) is None
    with journal_of(path, "another") as journal:
        assert journal.response_count == 0


def test_an_open_journal_can_begin_the_next_batch(path: Path) -> None:
    """It then equals a journal that was opened for that batch, on disk too."""
    with journal_of(path) as journal:
        journal.record_response(journal.next_call_key("a"), ANSWER)
        journal.begin_batch("another", 7)
        assert journal.find_response(journal.next_call_key("a")) is None
        journal.record_response(journal.next_call_key("b"), ANSWER)

    with journal_of(path, "another") as journal:
        assert (True, 1) == (journal.is_rerun, journal.response_count)
        journal.begin_batch("another", 7)
        assert (True, 1, {7: 2}) == (journal.is_rerun, journal.response_count, journal.push_starts)
        journal.begin_batch("third", 8)
        assert (False, 0, {8: 1}) == (journal.is_rerun, journal.response_count, journal.push_starts)


def test_an_unanswered_call_keeps_its_idempotency_key(path: Path) -> None:
    """The server can recognize a request that it has received before."""
    with journal_of(path) as journal:
        first = journal.idempotency_key(journal.next_call_key("a"))

    with journal_of(path) as journal:
        assert first == journal.idempotency_key(journal.next_call_key("a"))
        assert first != journal.idempotency_key(journal.next_call_key("a"))
        assert first != journal.idempotency_key(journal.next_call_key("b"))
    with journal_of(path, "another") as journal:
        assert first != journal.idempotency_key(journal.next_call_key("a"))


def test_an_answered_failure_changes_the_key_also_after_a_crash(path: Path) -> None:
    """Some APIs return a stored 500 again for the same key."""
    with journal_of(path) as journal:
        slot = journal.next_call_key("a")
        before = journal.idempotency_key(slot)
        journal.record_failure(slot)
        after = journal.idempotency_key(slot)

    assert before != after
    with journal_of(path) as journal:
        assert after == journal.idempotency_key(journal.next_call_key("a"))
        assert journal.find_response(CallKey("a", 0)) is None


@pytest.mark.parametrize("torn", [b'["a",1,201,"x', b'["a",1]', b"\x00\x00\x00", b"\xff\xfe\n", b"{}\n"])
def test_an_incomplete_last_line_is_ignored(path: Path, torn: bytes) -> None:
    """Lines that are written after it can be read."""
    with journal_of(path) as journal:
        journal.record_response(journal.next_call_key("a"), ANSWER)
    with path.open("ab") as file:
        file.write(torn)

    with journal_of(path) as journal:
        assert journal.find_response(journal.next_call_key("a")) == ANSWER
        journal.record_response(journal.next_call_key("a"), HttpResponse(202, "", {}))
    with journal_of(path) as journal:
        assert journal.response_count == 2


def test_a_file_cut_at_any_byte_has_the_answers_of_its_complete_lines(path: Path) -> None:
    """Wherever the process is killed, the journal has the answers up to then."""
    with journal_of(path) as journal:
        for number in range(3):
            journal.record_response(journal.next_call_key("a"), HttpResponse(200 + number, "é\n", {}))
    content = path.read_bytes()

    for size in range(len(content) + 1):
        path.write_bytes(content[:size])
        with journal_of(path) as journal:
            assert max(content[:size].count(b"\n") - 1, 0) == journal.response_count


def test_a_damaged_line_and_the_lines_after_it_are_ignored(path: Path) -> None:
    """A line with a changed bit isn't used, and neither are the lines after it."""
    responses = [HttpResponse(200 + number, "é fine", {"location": f"/c/{number}"}) for number in range(3)]
    with journal_of(path) as journal:
        for answered in responses:
            journal.record_response(journal.next_call_key("a"), answered)
    content = path.read_bytes()

    for place in range(len(content)):
        for bit in range(8):
            changed = bytearray(content)
            changed[place] ^= 1 << bit
            path.write_bytes(changed)
            with journal_of(path) as journal:
                read = [journal.find_response(journal.next_call_key("a")) for _ in responses]
            whole = max(content[:place].count(b"\n") - 1, 0)
            assert [*responses[:whole], *[None] * (3 - whole)] == read


def test_a_settled_answer_is_not_used_again(path: Path) -> None:
    """A batch may be settled in several steps. An equal call of the next step is a new call."""
    with journal_of(path) as journal:
        journal.restart_calls()
        journal.record_response(journal.next_call_key("a"), ANSWER)
        journal.record_settled()
        journal.restart_calls()
        assert journal.find_response(journal.next_call_key("a")) is None

    with journal_of(path) as journal:
        journal.restart_calls()
        assert journal.find_response(journal.next_call_key("a")) is None


def test_a_settled_batch_leaves_no_file(path: Path) -> None:
    """Responses contain personal data, so they are deleted once they aren't needed."""
    with journal_of(path) as journal:
        journal.record_response(journal.next_call_key("a"), ANSWER)
        assert 0o600 == path.stat().st_mode & 0o777
        journal.discard()

    assert not path.exists()


def test_requests_differ_by_method_address_and_body() -> None:
    """Text that moves from the address into the body changes the digest too."""
    requests = [("POST", "/a", b"b"), ("PUT", "/a", b"b"), ("POST", "/ab", b""), ("POST", "/a", b"")]

    assert len(requests) == len({digest_request(*request) for request in requests})


@pytest.mark.parametrize("answers", [1, 7])
def test_a_killed_process_leaves_every_answer_in_its_journal(path: Path, answers: int) -> None:
    """No fsync is needed, because kill -9 doesn't lose the bytes that a process has written."""
    child = subprocess.run([sys.executable, "-c", ANSWER_AND_DIE, str(path), str(answers)], check=False)
    assert -signal.SIGKILL == child.returncode

    with journal_of(path) as journal:
        assert answers == journal.response_count


def test_a_journal_that_cannot_grow_raises(path: Path) -> None:
    """Push doesn't get an answer that isn't stored, because a crash would repeat its call."""
    with limit_file_size(), journal_of(path) as journal, pytest.raises(DiskFullError, match=r"crm\.journal can't grow"):
        journal.record_response(journal.next_call_key("a"), dataclasses.replace(ANSWER, text="x" * 10_000))


def test_a_folder_in_place_of_a_journal_raises_a_clear_error(path: Path) -> None:
    path.mkdir(parents=True)
    with pytest.raises(StateError, match=r"crm\.journal can't be used: it is a folder"):
        ResponseJournal.open(path, "seed")
