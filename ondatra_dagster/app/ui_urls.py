"""The URLs at which the records page shows a sync and its runs."""

from typing import NamedTuple
from urllib.parse import quote

UI_HOST = "127.0.0.1"


class RecordLocations(NamedTuple):
    """The places of the records of a sync's run."""

    folder: str | None  # their folder; None: it left none
    page_url: str  # where `ondatra ui` shows them, or the sync


def sync_path(sync_id: str) -> str:
    return f"/syncs/{quote(sync_id, safe='')}"


def run_path(sync_id: str, run_id: str) -> str:
    return f"{sync_path(sync_id)}/runs/{quote(run_id, safe='')}"


def page_url(port: int, path: str = "/") -> str:
    """The address of a page, without what opens it: links are kept where others may read them."""
    return f"http://{UI_HOST}:{port}{path}"
