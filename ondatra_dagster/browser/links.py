"""The addresses of pages: what is asked of each stands in it, so that a page can be kept and sent on."""

from urllib.parse import quote, urlencode

from ondatra_dagster.orchestration.records_page import run_path, sync_path

HOME = "/"
STYLE, SCRIPT = "/assets/page.css", "/assets/page.js"


sync, run = sync_path, run_path


def runs(sync_id: str, *, page: int) -> str:
    """A sync's older runs."""
    return _asked(sync_path(sync_id), page=page if page > 1 else None)


def records(
    sync_id: str,
    *,
    run: str | None = None,
    status: str | None = None,
    change: str | None = None,
    search: str = "",
    reason: str | None = None,
    page: int = 1,
) -> str:
    asked = {"run": run, "status": status, "change": change, "search": search or None, "reason": reason}
    return _asked(f"{sync_path(sync_id)}/records", **asked, page=page if page > 1 else None)


def downloads(
    sync_id: str,
    ending: str,
    *,
    run: str | None,
    status: str | None,
    change: str | None,
    search: str,
    reason: str | None,
    limit: int | None,
) -> str:
    """The records as a file; `ending` has its dot."""
    asked = {"run": run, "status": status, "change": change, "search": search or None, "reason": reason}
    return _asked(f"{sync_path(sync_id)}/records{ending}", **asked, limit=limit)


def reasons(sync_id: str, *, run: str | None = None, status: str | None = None) -> str:
    return _asked(f"{sync_path(sync_id)}/reasons", run=run, status=status)


def queue(sync_id: str, *, page: int = 1) -> str:
    return _asked(f"{sync_path(sync_id)}/queue", page=page if page > 1 else None)


def dagster_run(dagster: str, run_id: str) -> str:
    """A run in Dagster's page."""
    return f"{dagster}/runs/{quote(run_id, safe='')}"


def _asked(path: str, **asked: str | int | None) -> str:
    given = {name: value for name, value in asked.items() if value is not None}
    return f"{path}?{urlencode(given)}" if given else path
