"""Why nothing of a sync is sent for now, and how a person begins and ends that."""

from ondatra_dagster.project.settings.settings import Settings
from ondatra_dagster.store.file_errors import explained
from ondatra_dagster.store.private_folder import keep_private
from ondatra_dagster.sync.sync import Sync


def hold(sync: Sync, settings: Settings) -> str | None:
    """Why nothing of the sync may be sent now; None when it may."""
    if settings.sinks == "dry":
        return "sinks are dry, nothing was sent"
    if sync.pause.exists():
        return f"{sync.id} is paused, `ondatra resume {sync.id}` lets it go on"
    return None


def pause(sync: Sync) -> None:
    """Hold the sync: its rows are taken into the queue, and none is sent."""
    keep_private(sync.state)
    with explained(sync.pause):
        sync.pause.parent.mkdir(mode=0o700, exist_ok=True)
        sync.pause.touch(mode=0o600)


def resume(sync: Sync) -> bool:
    """Let the sync go on; whether it was held."""
    with explained(sync.pause):
        was_paused = sync.pause.exists()
        sync.pause.unlink(missing_ok=True)
    return was_paused
