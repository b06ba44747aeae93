"""How far the published records have been taken into the sync log: a few words for each sync.

A run's files appear one after the other, and a run begins when all of the one before are there. So the newest
run that something was taken of says it for all before it.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Self

import orjson

from ondatra_dagster.planning.commit_note import newer
from ondatra_dagster.tracking.addresses import BatchType

_FORMAT, _NUMBER = "ondatra_sync_log", 1


class Piece(NamedTuple):
    """Records that lie together: a row group of one published file."""

    sync_id: str
    run_id: str
    batch_type: BatchType
    number: int  # of the file
    group: int
    first: int  # the place of its first record in the file
    rows: int
    size: int  # bytes, unpacked


@dataclasses.dataclass(frozen=True, slots=True)
class RunPosition:
    """The newest run that something was taken of, and where each of its types of files goes on."""

    run_id: str
    next: Mapping[str, tuple[int, int]]  # batch type → number of a file and of a row group in it


@dataclasses.dataclass(frozen=True, slots=True)
class Position:
    """What is in the log, for all syncs; `number` counts the commits."""

    number: int = 0
    syncs: Mapping[str, RunPosition] = dataclasses.field(default_factory=dict)

    def run_of(self, sync_id: str) -> str:
        """The run of which something is to come at the earliest; sorts before all when nothing was taken."""
        return self.syncs[sync_id].run_id if sync_id in self.syncs else ""

    def has(self, piece: Piece) -> bool:
        """Whether the piece is in the log."""
        at = self.syncs.get(piece.sync_id)
        if at is None or piece.run_id != at.run_id:
            return piece.run_id < self.run_of(piece.sync_id)
        return (piece.number, piece.group) < tuple(at.next.get(piece.batch_type, (0, 0)))

    def after(self, pieces: Iterable[Piece]) -> Self:
        """The position when these are in the log too, which are the next of each sync and type."""
        syncs = dict(self.syncs)
        for piece in pieces:
            at = syncs.get(piece.sync_id)
            before = at.next if at and at.run_id == piece.run_id else {}
            following = {**before, str(piece.batch_type): (piece.number, piece.group + 1)}
            syncs[piece.sync_id] = RunPosition(piece.run_id, following)
        return dataclasses.replace(self, number=self.number + 1, syncs=syncs)

    def dump(self) -> str:
        syncs = {sync_id: [at.run_id, dict(at.next)] for sync_id, at in self.syncs.items()}
        return orjson.dumps({_FORMAT: _NUMBER, "number": self.number, "syncs": syncs}).decode()

    @classmethod
    def load(cls, text: str) -> Self | None:
        """The position in a commit's user metadata; None when something else stands there."""
        try:
            fields = orjson.loads(text)
        except orjson.JSONDecodeError:
            return None
        number = fields.get(_FORMAT) if isinstance(fields, dict) else None
        if not isinstance(number, int):
            return None
        if number > _NUMBER:
            raise newer("ondatra.sync_log")
        syncs = {
            sync_id: RunPosition(run_id, {kind: tuple(place) for kind, place in following.items()})
            for sync_id, (run_id, following) in fields["syncs"].items()
        }
        return cls(fields["number"], syncs)
