"""The URLs of the UI's pages. A URL contains all filters of its page, so that users can keep and share it."""

import dataclasses
from typing import NamedTuple
from urllib.parse import quote, urlencode

UI_HOST = "127.0.0.1"


class RecordLocations(NamedTuple):
    """The places where the records of a sync's run are."""

    folder: str | None  # the folder of the records; None: the run has no records
    page_url: str  # the run's page in `ondatra ui`; without a run, the sync's page


def sync_path(sync_id: str) -> str:
    return f"/syncs/{quote(sync_id, safe='')}"


def run_path(sync_id: str, run_id: str) -> str:
    return f"{sync_path(sync_id)}/runs/{quote(run_id, safe='')}"


def page_url(port: int, path: str = "/") -> str:
    """Return the full URL of a page without the token, because others may read the places where links are kept."""
    return f"http://{UI_HOST}:{port}{path}"


HOME_URL = "/"
STYLE_URL, SCRIPT_URL = "/assets/page.css", "/assets/page.js"


def runs_url(sync_id: str, *, page: int) -> str:
    """Return the path of page number `page` of the sync's runs."""
    return _with_query(sync_path(sync_id), page=page if page > 1 else None)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RecordFilter:
    """The filters of records in a URL; None: no filter. Each field is a query parameter of the URL."""

    run: str | None = None
    status: str | None = None
    change: str | None = None
    search: str | None = None  # the beginning of the identifier
    reason: str | None = None  # "": only records without a reason


def records_url(sync_id: str, records: RecordFilter, *, page: int = 1) -> str:
    return _with_query(f"{sync_path(sync_id)}/records", **dataclasses.asdict(records), page=page if page > 1 else None)


def download_url(sync_id: str, suffix: str, records: RecordFilter, *, limit: int | None) -> str:
    """Return the path that downloads the records as a file; `suffix` begins with a dot."""
    return _with_query(f"{sync_path(sync_id)}/records{suffix}", **dataclasses.asdict(records), limit=limit)


def reasons_url(sync_id: str, *, run: str | None = None, status: str | None = None) -> str:
    return _with_query(f"{sync_path(sync_id)}/reasons", run=run, status=status)


def queue_url(sync_id: str, *, page: int = 1) -> str:
    return _with_query(f"{sync_path(sync_id)}/queue", page=page if page > 1 else None)


def dagster_run_url(dagster: str, run_id: str) -> str:
    """Return the URL of a run in Dagster's UI."""
    return f"{dagster}/runs/{quote(run_id, safe='')}"


def _with_query(path: str, **query_values: str | int | None) -> str:
    parameters = {name: value for name, value in query_values.items() if value is not None}
    return f"{path}?{urlencode(parameters)}" if parameters else path
