"""Where the records page shows a sync and a run of it, for links; the page itself is browser's."""

from typing import NamedTuple
from urllib.parse import quote

HOST = "127.0.0.1"


class RecordsPlaces(NamedTuple):
    """Where the records of a sync's run are to be found."""

    files: str | None  # their folder; None: it left none
    page: str  # where `ondatra ui` shows them, or the sync


def sync_path(sync_id: str) -> str:
    return f"/syncs/{quote(sync_id, safe='')}"


def run_path(sync_id: str, run_id: str) -> str:
    return f"{sync_path(sync_id)}/runs/{quote(run_id, safe='')}"


def page_address(port: int, path: str = "/") -> str:
    """The address of a page, without what opens it: links are kept where others may read them."""
    return f"http://{HOST}:{port}{path}"
