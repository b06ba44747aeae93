"""The contents of the pages, for a project whose runs didn't all succeed."""

import dataclasses
import re
from datetime import timedelta
from pathlib import Path

import pytest
from support.processes.killed_dagster_push import run_killed_push
from support.projects.shop_project import WHOLE_TABLE_FILES, ShopProject, write_contacts
from support.projects.shop_with_history import DAGSTER_RUN_ID, HOSTILE_EMAIL, HOSTILE_KEY, run_shop
from support.projects.ui_client import PageReader

from ondatra_dagster.app.workspace import ProjectCache
from ondatra_dagster.count_time_and_size_format import format_local_time
from ondatra_dagster.storage.file_lock import FileLock
from ondatra_dagster.sync.run_context import RunOptions
from ondatra_dagster.sync.send_guards import pause_sync, resume_sync
from ondatra_dagster.testing.demo_api import DemoApi

SYNC = "/syncs/sync.crm"


@pytest.fixture
def run_ids(shop_with_history: ShopProject) -> list[str]:
    """Return the run ids, the newest first. The first of them is the dry run."""
    return [run.run_id for run in shop_with_history.workspace.history.list_runs("sync.crm", with_dry=True)]


@pytest.fixture
def reader_of_new_project(tmp_path: Path, api: DemoApi) -> PageReader:
    """Return a reader of a project that has never run."""
    return PageReader(ProjectCache(ShopProject.create(tmp_path / "new", url=api.url).root))


def test_the_first_page_shows_the_health_of_each_sync(get_page: PageReader) -> None:
    page = get_page("/")
    assert 200 == page.status
    assert SYNC in page.link_addresses
    assert "sync.crm Demo · Contact ! rejects 1" in page.text
    assert "1 sync · 1 with a problem · 1 key to be delivered" in page.text
    assert ["2 of the last 3 runs succeeded"] == [chart["aria-label"] for chart in page.tag_attributes("svg")]


def test_a_sync_that_never_ran_says_so(reader_of_new_project: PageReader) -> None:
    """All its pages exist."""
    assert "never ran" in reader_of_new_project("/").text
    assert "It has never run" in reader_of_new_project(SYNC).text
    assert "sync.crm has no records yet." in reader_of_new_project(f"{SYNC}/records").text
    assert "No record has this status." in reader_of_new_project(f"{SYNC}/reasons").text
    assert "There is no queue yet" in reader_of_new_project(f"{SYNC}/queue").text


def test_a_sync_shows_its_runs_with_the_newest_first(get_page: PageReader, run_ids: list[str]) -> None:
    """The dry run is marked, and has no link to records."""
    page = get_page(SYNC)
    shown = [link for link in page.link_addresses if link.startswith(f"{SYNC}/runs/")]
    assert [f"{SYNC}/runs/{run_id}" for run_id in run_ids] == list(dict.fromkeys(shown[3:]))
    assert "◌ dry 1 to create" in page.text
    assert "push__sync__crm__sensor" in page.text
    assert [f"{SYNC}/records?run={run_id}" for run_id in run_ids[1:]] == [
        link for link in page.link_addresses if "records?run" in link and "&" not in link
    ]


def test_a_chart_has_a_text_alternative(get_page: PageReader) -> None:
    """A user who sees no picture or no colours can read the numbers."""
    (chart,) = get_page(SYNC).tag_attributes("svg")
    assert "Rows of the last 3 runs: " in chart["aria-label"]
    assert "1 rejected" in chart["aria-label"]


def test_each_of_a_few_bars_has_its_time_below(get_page: PageReader, shop_with_history: ShopProject) -> None:
    """The user doesn't have to count bars to find a run. Each day is shown once."""
    labels, day = [], ""
    for past in reversed(shop_with_history.workspace.history.list_runs("sync.crm")):
        today, hour = format_local_time(past.started_at).split(" ")
        labels += [hour] if today == day else [today, hour]
        day = today
    assert f" {' '.join(labels)} " in get_page(SYNC).text


def test_in_a_chart_of_many_bars_only_the_first_and_the_last_have_a_time(tmp_path: Path, api: DemoApi) -> None:
    """The times of all bars would overlap."""
    shop = ShopProject.create(tmp_path / "shop", url=api.url)
    write_contacts(shop.root, a1="ada@example.com")
    run_shop(shop)
    (past,) = shop.workspace.history.list_runs("sync.crm")
    for place in range(12):
        later = past.started_at + timedelta(days=place + 1)
        shop.workspace.history.finish_run(dataclasses.replace(past, run_id=f"r{place:02}", started_at=later))
    page = PageReader(ProjectCache(shop.root))(SYNC)
    assert {"class": "span"} in page.tag_attributes("div")
    assert (
        f" {format_local_time(past.started_at)} {format_local_time(past.started_at + timedelta(days=12))} " in page.text
    )


def test_a_run_shows_its_counts_and_links(get_page: PageReader, run_ids: list[str]) -> None:
    """It shows the result of its rows, and links to its records and to Dagster."""
    first = get_page(f"{SYNC}/runs/{run_ids[-1]}")
    assert "planned what was in the queue for this run 3 0 0 3" in first.text
    assert "succeeded delivered 2 0 0 2" in first.text
    assert "rejected rejected, or failed too often 1 0 0 1" in first.text
    assert "invalid rows that aren't in the table because of their key 1 0 0 1" in first.text
    assert f"{SYNC}/records?run={run_ids[-1]}" in first.link_addresses
    newest = get_page(f"{SYNC}/runs/{run_ids[1]}")
    assert f"http://127.0.0.1:3000/runs/{DAGSTER_RUN_ID}" in newest.link_addresses


def test_each_count_links_to_exactly_its_records(get_page: PageReader, run_ids: list[str]) -> None:
    """A user who follows a count expects these records, not more and not fewer."""
    followed = set()
    for page in (SYNC, *(f"{SYNC}/runs/{run_id}" for run_id in run_ids)):
        for text, link in get_page(page).link_targets:
            if "status=" not in link:
                continue
            records_page = get_page(link)
            (counted,) = re.findall(r" Records ([0-9,]+) Run ", records_page.text)
            assert (text, text) == (counted, str(len(records_page.tag_attributes("details"))))
            followed.add(link.partition("status=")[2])
    of_all = {"succeeded", "rejected", "invalid"}
    assert of_all | {f"{status}&change=insert" for status in of_all} == followed


def test_a_filter_by_change_type_remains_until_it_is_removed(get_page: PageReader, run_ids: list[str]) -> None:
    """It remains on other pages, in searches and in downloads."""
    address = f"{SYNC}/records?run={run_ids[-1]}&status=succeeded&change=insert"
    page = get_page(address)
    assert "Only inserts show all changes" in page.text
    assert f"{SYNC}/records?run={run_ids[-1]}&status=succeeded" in page.link_addresses
    assert f"{SYNC}/records?run={run_ids[-1]}&status=rejected&change=insert" in page.link_addresses
    assert {"type": "hidden", "name": "change", "value": "insert"} in page.tag_attributes("input")
    assert f"{SYNC}/records.csv?run={run_ids[-1]}&status=succeeded&change=insert" in page.link_addresses
    assert "No record matches." in get_page(address.replace("insert", "delete")).text
    odd = get_page(address.replace("insert", "inserts"))
    assert (404, True) == (odd.status, "did you mean 'insert'?" in odd.text)


def test_counts_of_removed_records_have_no_link(tmp_path: Path, api: DemoApi) -> None:
    """The retention has removed these records."""
    shop = ShopProject.create(tmp_path / "shop", url=api.url)
    write_contacts(shop.root, a1="ada@example.com")
    run_id = run_shop(shop).summary.run_id or ""
    look = PageReader(ProjectCache(shop.root))
    pages = (SYNC, f"{SYNC}/runs/{run_id}")
    counts = [len([link for link in look(page).link_addresses if "status=" in link]) for page in pages]
    assert 0 not in counts
    shop.workspace.tracking.remove_run("sync.crm", run_id)
    for page in pages:
        parsed_page = look(page)
        assert (200, []) == (parsed_page.status, [link for link in parsed_page.link_addresses if "status=" in link])


def test_a_failed_run_says_why(get_page: PageReader, run_ids: list[str]) -> None:
    page = get_page(f"{SYNC}/runs/{run_ids[2]}")
    assert "Errors" in page.text
    assert "<i>down</i>" in page.text


def test_a_run_shows_the_rows_of_each_reason(tmp_path: Path, api: DemoApi) -> None:
    """It shows rows that are retried and rows that were rejected."""
    shop = ShopProject.create(tmp_path / "shop", url=api.url)
    write_contacts(shop.root, a1="ada@example.com", b2="bob@example.com", c3="cyn@example.com")
    api.fail(status=409, times=2, path="/crm/*", message="conflict")
    api.fail(status=422, times=1, path="/crm/*", message="no mail")
    run_id = run_shop(shop).summary.run_id
    text = PageReader(ProjectCache(shop.root))(f"{SYNC}/runs/{run_id}").text
    assert "2 rows (a1, b2): " in text
    assert "c3: " in text
    assert "no mail" in text


def test_a_dry_run_shows_its_result(get_page: PageReader, run_ids: list[str]) -> None:
    page = get_page(f"{SYNC}/runs/{run_ids[0]}")
    assert "A dry run: 1 to create" in page.text
    assert "destination before 3 destination after 4" in page.text
    assert f"{SYNC}/records?run={run_ids[0]}" not in page.link_addresses


def test_the_only_run_is_named_the_last_run(tmp_path: Path, api: DemoApi) -> None:
    shop = ShopProject.create(tmp_path / "shop", url=api.url)
    write_contacts(shop.root, a1="ada@example.com")
    run_shop(shop)
    assert " Rows of the last run " in PageReader(ProjectCache(shop.root))(SYNC).text


def test_a_run_whose_records_were_removed_says_so(tmp_path: Path, api: DemoApi) -> None:
    """Its counts remain in the history."""
    shop = ShopProject.create(tmp_path / "shop", url=api.url)
    write_contacts(shop.root, a1="ada@example.com")
    run_id = run_shop(shop).summary.run_id
    assert run_id
    shop.workspace.tracking.remove_run("sync.crm", run_id)
    page = PageReader(ProjectCache(shop.root))(f"{SYNC}/runs/{run_id}")
    assert "The records of this run were removed" in page.text
    assert "Records are kept for 14 days." in page.text
    assert f"{SYNC}/records?run={run_id}" not in page.link_addresses


def test_the_queue_page_shows_the_rows_of_a_replay(get_page: PageReader) -> None:
    """It also shows the command that replays them: the page itself changes nothing."""
    page = get_page(f"{SYNC}/queue")
    assert "ondatra replay sync.crm" in page.text
    assert "b2" in page.text
    assert "refused at once" in page.text
    assert [] == page.tag_attributes("button")


def test_a_paused_sync_is_marked_on_the_pages(shop_with_history: ShopProject, get_page: PageReader) -> None:
    sync = shop_with_history.workspace.sync("sync.crm")
    pause_sync(sync)
    try:
        assert "‖ paused" in get_page("/").text
        assert "sync.crm is paused; `ondatra resume sync.crm` continues it" in get_page(f"{SYNC}/queue").text
    finally:
        resume_sync(sync)


def test_sinks_that_send_nothing_are_reported(tmp_path: Path, api: DemoApi) -> None:
    """Otherwise the user would wonder why all rows wait."""
    shop = ShopProject.create(
        tmp_path / "dry", url=api.url, files={"pyproject.toml": '[tool.ondatra]\nsinks = "dry"\n'}
    )
    assert "The setting sinks is dry: nothing is sent." in PageReader(ProjectCache(shop.root))("/").text


def test_a_damaged_history_is_reported_on_the_page(tmp_path: Path, api: DemoApi) -> None:
    """Otherwise a sync that has delivered for years would look like one that never ran."""
    shop = ShopProject.create(tmp_path / "shop", url=api.url)
    write_contacts(shop.root, a1="ada@example.com")
    run_shop(shop)
    history = shop.root / ".ondatra" / "history.sqlite"
    history.write_bytes(b"no database" * 1000)
    page = PageReader(ProjectCache(shop.root))("/")
    assert 200 == page.status
    assert f"No past runs are shown: {history} is damaged (file is not a database)" in page.text


def test_an_unreadable_sync_does_not_hide_other_syncs(tmp_path: Path, api: DemoApi) -> None:
    """A queue that is broken, or that a newer ondatra has written, is one of many."""
    erp = "-- @kind: merge\n-- @unique_key: id\n-- @sink: crm_push\nSELECT id, email FROM raw.contacts\n"
    shop = ShopProject.create(tmp_path / "shop", url=api.url, files={"models/sync/erp.sql": erp})
    write_contacts(shop.root, a1="ada@example.com")
    run_shop(shop)
    queue = shop.workspace.sync("sync.erp").queue_file
    queue.write_bytes(b"no database" * 1000)
    page = PageReader(ProjectCache(shop.root))("/")
    assert (200, True) == (page.status, "✓ ok" in page.text)
    assert "sync.erp Demo · Contact ✕ can't be read" in page.text
    assert f"{queue} is damaged (file is not a database)" in page.text
    assert "2 syncs · 1 with a problem · 1 sync with unknown pending rows" in page.text


@pytest.mark.parametrize("rows", [0, 1234])
def test_a_dead_whole_table_shows_its_first_rows(tmp_path: Path, api: DemoApi, rows: int) -> None:
    """It is one dead letter, and may have a million rows."""
    shop = ShopProject.create(tmp_path / "shop", url=api.url, files=WHOLE_TABLE_FILES)
    write_contacts(shop.root, **{f"a{number}": "ada@example.com" for number in range(rows)})
    run_shop(shop)
    page = PageReader(ProjectCache(shop.root))(f"{SYNC}/queue")
    assert "(the whole table)" in page.text
    assert min(rows, 10) == len(page.tag_attributes("details"))
    assert ("… and 1,224 rows more, 1,234 in all" if rows else "its content, which has no rows") in page.text


def test_a_run_whose_process_has_ended_is_shown_as_crashed(tmp_path: Path, api: DemoApi) -> None:
    """It can't report the crash itself, and the page must not wait forever."""
    root = tmp_path / "shop"
    run_id = run_killed_push(root, api.url)
    look = PageReader(ProjectCache(root))
    home_page = look("/")
    assert "✕ failing" in home_page.text
    assert "✕ crashed" in home_page.text
    page = look(f"{SYNC}/runs/{run_id}")
    assert "✕ crashed" in page.text
    assert "Its deliveries are among its records; the next run counts them." in page.text
    assert "Took -" in page.text  # the end time is unknown, and the run doesn't continue
    assert not any("data-live" in attributes for attributes in page.tag_attributes("main"))
    assert "✕ crashed ondatra run full the first run sends the whole table - → 0 - - - - - view" in look(SYNC).text
    sync = ShopProject.create(root, url=api.url).workspace.sync("sync.crm")
    with FileLock(sync.lock_file, purpose="delivers"):
        assert "▸ running" in look(f"{SYNC}/runs/{run_id}").text


def test_a_crashed_run_shows_its_counts_up_to_the_crash(tmp_path: Path, api: DemoApi) -> None:
    """The rows that it had planned and didn't send are known, too."""
    root = tmp_path / "shop"
    run_id = run_killed_push(root, api.url)
    run_again(root, api.url)
    look = PageReader(ProjectCache(root))
    page = look(f"{SYNC}/runs/{run_id}")
    assert "planned what was in the queue for this run 2 0 0 2 attempted" in page.text
    assert "failed 2 0 0 2 succeeded delivered 2 0 0 2 rejected" in page.text
    assert "the API was down, or the run was ended 0 0 0 0 invalid" in page.text
    sync_page = look(SYNC)
    assert "the first run sends the whole table - → 0 - 2 0 0 0 view" in sync_page.text
    (chart,) = sync_page.tag_attributes("svg")
    summary = "Rows of the last run: 2 succeeded, 0 rejected, 0 failed, is retried, 0 invalid."
    assert summary in chart["aria-label"]


def run_again(root: Path, url: str) -> None:
    """Run again with nothing to send. This run notes the results of the earlier one."""
    shop = ShopProject.create(root, url=url)
    workspace = shop.workspace
    with shop.open_engine(workspace) as engine:
        engine.push(workspace.sync("sync.crm"), RunOptions(trigger="ondatra run"))


@pytest.mark.parametrize(
    "address", ["/", SYNC, f"{SYNC}/records", f"{SYNC}/reasons", f"{SYNC}/reasons?status=waiting", f"{SYNC}/queue"]
)
def test_text_from_other_systems_is_shown_as_text(get_page: PageReader, address: str) -> None:
    """It may be in a payload, a key, a reason or the project's name. It creates no element, and nothing is executed."""
    page = get_page(address)
    assert [{"src": "/assets/page.js", "defer": ""}] == page.tag_attributes("script")
    assert [] == [element for element in page.tag_attributes("i") if "class" not in element]
    assert [] == [element for element in page.tag_attributes("b") if element]
    names = {name for _, attributes in page.elements for name in attributes}
    assert [] == sorted(name for name in names if name.startswith("on") or name == "style")
    assert "my <shop>" in page.text


def test_hostile_text_remains_readable(get_page: PageReader) -> None:
    """It isn't removed either: it may be the reason why a row was refused."""
    assert HOSTILE_EMAIL in get_page(f"{SYNC}/records?status=rejected").text
    assert HOSTILE_KEY in get_page(f"{SYNC}/records").text


def test_every_link_of_every_page_works(get_page: PageReader) -> None:
    """A renamed page must not leave dead links."""
    visited_addresses: set[str] = set()
    coming = ["/"]
    while coming:
        address = coming.pop()
        if address in visited_addresses or not address.startswith("/"):
            continue
        visited_addresses.add(address)
        answer = get_page.client.get(address)
        assert 200 == answer.status_code, address
        if answer.headers["content-type"].startswith("text/html"):
            coming += get_page(address).link_addresses
    assert len(visited_addresses) > 30


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("/nowhere", "There is no page at this address"),
        ("/syncs/sync.crmm", "did you mean 'sync.crm'?"),
        (f"{SYNC}/runs/20261118T120000Z-abcdef", "in its history; its page lists those"),
        (f"{SYNC}/records?run=x", "sync.crm has no records of a run 'x'"),
        (f"{SYNC}/records?status=rejectd", "there is no status 'rejectd'; did you mean 'rejected'?"),
        (f"{SYNC}/records?page=0", "page can't be '0'; it is a number from 1 to"),
        (f"{SYNC}/records?page=-1", "page can't be '-1'"),
        (f"{SYNC}/records?page=9999999999999999999999", "page can't be"),
        (f"{SYNC}/records?page=00000000000019999999999999999999", "page can't be"),
        (f"{SYNC}?page=00000000000019999999999999999999", "page can't be"),
        (f"{SYNC}/queue?page=00000000000019999999999999999999", "page can't be"),
        (f"{SYNC}/records?page=²", "page can't be '²'"),
        (f"{SYNC}/records.xlsx", "records have no format 'xlsx'"),
        (f"{SYNC}/records.csv?limit=many", "limit can't be 'many'"),
    ],
)
def test_a_missing_page_is_reported_in_a_sentence(get_page: PageReader, address: str, sentence: str) -> None:
    page = get_page(address)
    assert 404 == page.status
    assert sentence.casefold() in page.text.casefold()
    assert "Traceback" not in page.text


def test_a_page_past_the_end_says_that_there_are_no_more(get_page: PageReader) -> None:
    """A bookmarked page may be past the end now. A page that says "never" would be wrong."""
    assert "There are no older runs." in get_page(f"{SYNC}?page=9").text
    assert "There are no more dead letters." in get_page(f"{SYNC}/queue?page=9").text
    assert "There are no more records." in get_page(f"{SYNC}/records?page=9").text


def test_a_sentence_begins_with_a_capital_but_a_name_is_unchanged(get_page: PageReader) -> None:
    """A user who copies the sync's id must get exactly that id."""
    assert " sync.crm has no records of a run 'x'" in get_page(f"{SYNC}/records?run=x").text
    assert " There is no status 'odd'" in get_page(f"{SYNC}/records?status=odd").text


def test_an_error_of_the_state_shows_its_message(tmp_path: Path, api: DemoApi) -> None:
    """The page says what to do, in the same words as the commands."""
    shop = ShopProject.create(tmp_path / "shop", url=api.url)
    write_contacts(shop.root, a1="ada@example.com")
    run_id = run_shop(shop).summary.run_id
    file = Path(shop.workspace.tracking.run_address("sync.crm", run_id or "")) / "records_updated.0.parquet"
    file.write_bytes(b"no Parquet")
    look = PageReader(ProjectCache(shop.root))
    for address in (f"{SYNC}/records", f"{SYNC}/records.csv"):
        page = look(address)
        assert 500 == page.status
        assert "can't be read" in page.text
        assert "bring it back from a backup" in page.text


def test_a_page_that_may_change_reloads_itself(get_page: PageReader, run_ids: list[str]) -> None:
    """A page that can't change doesn't reload."""
    assert ["15"] == [attributes["data-live"] for attributes in get_page("/").tag_attributes("main")]
    assert not any(
        "data-live" in attributes for attributes in get_page(f"{SYNC}/runs/{run_ids[1]}").tag_attributes("main")
    )


def test_tables_have_captions_and_header_cells(get_page: PageReader) -> None:
    """A user with a screen reader has to know the meaning of a number."""
    for address in ("/", SYNC, f"{SYNC}/records", f"{SYNC}/reasons", f"{SYNC}/queue"):
        page = get_page(address)
        assert len(page.tag_attributes("table")) == len(page.tag_attributes("caption")) > 0
        assert {"col", "row"} == {cell["scope"] for cell in page.tag_attributes("th")}
        assert 1 == len(page.tag_attributes("h1")) == len(page.tag_attributes("main"))
        assert "#main" in page.link_addresses
