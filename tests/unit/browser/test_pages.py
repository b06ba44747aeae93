"""What the pages show of a project that has run, not always well."""

import dataclasses
import re
from datetime import timedelta
from pathlib import Path

import pytest
from support.killed_push import killed_push
from support.pages import Reader
from support.ran_shop import DAGSTER_RUN, HOSTILE, HOSTILE_KEY, run
from support.shop import WHOLE, Shop, write_contacts

from ondatra_dagster.orchestration.project_reader import ProjectReader
from ondatra_dagster.store.lock import FileLock
from ondatra_dagster.sync.hold import pause, resume
from ondatra_dagster.sync.start import Occasion
from ondatra_dagster.testing.demo_api import DemoApi
from ondatra_dagster.wording import moment

SYNC = "/syncs/sync.crm"


@pytest.fixture
def runs(ran: Shop) -> list[str]:
    """The newest first; the first of them is the dry one."""
    return [run.run_id for run in ran.workspace.history.runs("sync.crm", with_dry=True)]


@pytest.fixture
def empty(tmp_path: Path, api: DemoApi) -> Reader:
    """A project that nobody has run."""
    return Reader(ProjectReader(Shop.at(tmp_path / "new", url=api.url).root))


def test_the_first_page_says_how_each_sync_stands(look: Reader) -> None:
    told = look("/")
    assert 200 == told.status
    assert SYNC in told.links
    assert "sync.crm Demo · Contact ! rejects 1" in told.text
    assert "1 sync · 1 to look at · 1 key to be delivered" in told.text
    assert ["2 of the last 3 runs succeeded"] == [each["aria-label"] for each in told.all("svg")]


def test_a_sync_that_never_ran_says_so(empty: Reader) -> None:
    """And all its pages are there."""
    assert "never ran" in empty("/").text
    assert "It has never run" in empty(SYNC).text
    assert "sync.crm has no records yet." in empty(f"{SYNC}/records").text
    assert "No record ended so." in empty(f"{SYNC}/reasons").text
    assert "There is no queue yet" in empty(f"{SYNC}/queue").text


def test_a_sync_shows_its_runs_the_newest_first(look: Reader, runs: list[str]) -> None:
    """The dry one is marked, and has no records to look at."""
    told = look(SYNC)
    shown = [link for link in told.links if link.startswith(f"{SYNC}/runs/")]
    assert [f"{SYNC}/runs/{each}" for each in runs] == list(dict.fromkeys(shown[3:]))
    assert "◌ dry 1 to create" in told.text
    assert "push__sync__crm__sensor" in told.text
    assert [f"{SYNC}/records?run={each}" for each in runs[1:]] == [
        link for link in told.links if "records?run" in link and "&" not in link
    ]


def test_a_chart_is_told_in_words_too(look: Reader) -> None:
    """Who sees no picture, or no colours, has the numbers."""
    (chart,) = look(SYNC).all("svg")
    assert "Rows of the last 3 runs: " in chart["aria-label"]
    assert "1 rejected" in chart["aria-label"]


def test_each_of_a_few_bars_has_its_time_below(look: Reader, ran: Shop) -> None:
    """Else one has to count bars to know which run it was; the day is told once."""
    told, day = [], ""
    for past in reversed(ran.workspace.history.runs("sync.crm")):
        today, hour = moment(past.started_at).split(" ")
        told += [hour] if today == day else [today, hour]
        day = today
    assert f" {' '.join(told)} " in look(SYNC).text


def test_of_many_bars_the_first_and_the_last_have_their_time(tmp_path: Path, api: DemoApi) -> None:
    """All would stand over each other."""
    shop = Shop.at(tmp_path / "shop", url=api.url)
    write_contacts(shop.root, a1="ada@example.com")
    run(shop)
    (past,) = shop.workspace.history.runs("sync.crm")
    for place in range(12):
        later = past.started_at + timedelta(days=place + 1)
        shop.workspace.history.finish(dataclasses.replace(past, run_id=f"r{place:02}", started_at=later))
    told = Reader(ProjectReader(shop.root))(SYNC)
    assert {"class": "span"} in told.all("div")
    assert f" {moment(past.started_at)} {moment(past.started_at + timedelta(days=12))} " in told.text


def test_a_run_shows_its_counts_and_leads_on(look: Reader, runs: list[str]) -> None:
    """What became of how many rows; to its records; to Dagster."""
    first = look(f"{SYNC}/runs/{runs[-1]}")
    assert "planned what the queue held for this run 3 0 0 3" in first.text
    assert "succeeded delivered 2 0 0 2" in first.text
    assert "rejected refused, or tried too often 1 0 0 1" in first.text
    assert "invalid rows kept out of the table for their key 1 0 0 1" in first.text
    assert f"{SYNC}/records?run={runs[-1]}" in first.links
    newest = look(f"{SYNC}/runs/{runs[1]}")
    assert f"http://127.0.0.1:3000/runs/{DAGSTER_RUN}" in newest.links


def test_each_count_leads_to_just_those_records(look: Reader, runs: list[str]) -> None:
    """Who sees a number wants to see what is behind it, and neither more nor less."""
    followed = set()
    for page in (SYNC, *(f"{SYNC}/runs/{each}" for each in runs)):
        for text, link in look(page).linked:
            if "status=" not in link:
                continue
            told = look(link)
            (counted,) = re.findall(r" Records ([0-9,]+) Of run ", told.text)
            assert (text, text) == (counted, str(len(told.all("details"))))
            followed.add(link.partition("status=")[2])
    of_all = {"succeeded", "rejected", "invalid"}
    assert of_all | {f"{status}&change=insert" for status in of_all} == followed


def test_a_change_is_asked_for_and_let_go_of(look: Reader, runs: list[str]) -> None:
    """It stays while one turns pages, searches and downloads."""
    asked = f"{SYNC}/records?run={runs[-1]}&status=succeeded&change=insert"
    told = look(asked)
    assert "Only inserts show all changes" in told.text
    assert f"{SYNC}/records?run={runs[-1]}&status=succeeded" in told.links
    assert f"{SYNC}/records?run={runs[-1]}&status=rejected&change=insert" in told.links
    assert {"type": "hidden", "name": "change", "value": "insert"} in told.all("input")
    assert f"{SYNC}/records.csv?run={runs[-1]}&status=succeeded&change=insert" in told.links
    assert "No record is like that." in look(asked.replace("insert", "delete")).text
    odd = look(asked.replace("insert", "inserts"))
    assert (404, True) == (odd.status, "did you mean 'insert'?" in odd.text)


def test_counts_of_records_that_are_gone_lead_nowhere(tmp_path: Path, api: DemoApi) -> None:
    """The retention has removed them."""
    shop = Shop.at(tmp_path / "shop", url=api.url)
    write_contacts(shop.root, a1="ada@example.com")
    run_id = run(shop).summary.run_id or ""
    look = Reader(ProjectReader(shop.root))
    pages = (SYNC, f"{SYNC}/runs/{run_id}")
    counts = [len([link for link in look(page).links if "status=" in link]) for page in pages]
    assert 0 not in counts
    shop.workspace.tracking.remove_run("sync.crm", run_id)
    for page in pages:
        told = look(page)
        assert (200, []) == (told.status, [link for link in told.links if "status=" in link])


def test_a_run_that_failed_says_why(look: Reader, runs: list[str]) -> None:
    told = look(f"{SYNC}/runs/{runs[2]}")
    assert "Errors" in told.text
    assert "<i>down</i>" in told.text


def test_a_run_tells_of_whose_rows_each_reason_is(tmp_path: Path, api: DemoApi) -> None:
    """Those that are tried again, and those that were rejected."""
    shop = Shop.at(tmp_path / "shop", url=api.url)
    write_contacts(shop.root, a1="ada@example.com", b2="bob@example.com", c3="cyn@example.com")
    api.fail(status=409, times=2, path="/crm/*", message="conflict")
    api.fail(status=422, times=1, path="/crm/*", message="no mail")
    run_id = run(shop).summary.run_id
    text = Reader(ProjectReader(shop.root))(f"{SYNC}/runs/{run_id}").text
    assert "2 rows (a1, b2): " in text
    assert "c3: " in text
    assert "no mail" in text


def test_a_dry_run_shows_what_it_said(look: Reader, runs: list[str]) -> None:
    told = look(f"{SYNC}/runs/{runs[0]}")
    assert "A dry run: 1 to create" in told.text
    assert "destination before 3 destination after 4" in told.text
    assert f"{SYNC}/records?run={runs[0]}" not in told.links


def test_a_first_run_is_the_last_run(tmp_path: Path, api: DemoApi) -> None:
    shop = Shop.at(tmp_path / "shop", url=api.url)
    write_contacts(shop.root, a1="ada@example.com")
    run(shop)
    assert " Rows of the last run " in Reader(ProjectReader(shop.root))(SYNC).text


def test_a_run_whose_records_are_gone_says_so(tmp_path: Path, api: DemoApi) -> None:
    """Its counts stay in the history."""
    shop = Shop.at(tmp_path / "shop", url=api.url)
    write_contacts(shop.root, a1="ada@example.com")
    run_id = run(shop).summary.run_id
    assert run_id
    shop.workspace.tracking.remove_run("sync.crm", run_id)
    told = Reader(ProjectReader(shop.root))(f"{SYNC}/runs/{run_id}")
    assert "The records of this run are gone" in told.text
    assert "Records are kept for 14 days." in told.text
    assert f"{SYNC}/records?run={run_id}" not in told.links


def test_the_queue_shows_what_a_replay_would_send(look: Reader) -> None:
    """And the command that does it: the page does nothing."""
    told = look(f"{SYNC}/queue")
    assert "ondatra replay sync.crm" in told.text
    assert "b2" in told.text
    assert "refused at once" in told.text
    assert [] == told.all("button")


def test_who_holds_a_sync_is_told(ran: Shop, look: Reader) -> None:
    sync = ran.workspace.sync("sync.crm")
    pause(sync)
    try:
        assert "‖ paused" in look("/").text
        assert "sync.crm is paused, `ondatra resume sync.crm` lets it go on" in look(f"{SYNC}/queue").text
    finally:
        resume(sync)


def test_sinks_that_send_nothing_are_told(tmp_path: Path, api: DemoApi) -> None:
    """Else one wonders why everything waits."""
    shop = Shop.at(tmp_path / "dry", url=api.url, files={"pyproject.toml": '[tool.ondatra]\nsinks = "dry"\n'})
    assert "The setting sinks is dry: nothing is sent." in Reader(ProjectReader(shop.root))("/").text


def test_a_damaged_history_is_said_where_runs_would_be(tmp_path: Path, api: DemoApi) -> None:
    """Otherwise a sync that has delivered for years would look like one that never ran."""
    shop = Shop.at(tmp_path / "shop", url=api.url)
    write_contacts(shop.root, a1="ada@example.com")
    run(shop)
    history = shop.root / ".ondatra" / "history.sqlite"
    history.write_bytes(b"no database" * 1000)
    page = Reader(ProjectReader(shop.root))("/")
    assert 200 == page.status
    assert f"No past runs are shown: {history} is damaged (file is not a database)" in page.text


def test_a_sync_that_can_t_be_looked_at_hides_no_other(tmp_path: Path, api: DemoApi) -> None:
    """A queue that is broken, or that a newer ondatra has written, is one of many."""
    erp = "-- @kind: merge\n-- @unique_key: id\n-- @sink: crm_push\nSELECT id, email FROM raw.contacts\n"
    shop = Shop.at(tmp_path / "shop", url=api.url, files={"models/sync/erp.sql": erp})
    write_contacts(shop.root, a1="ada@example.com")
    run(shop)
    queue = shop.workspace.sync("sync.erp").queue
    queue.write_bytes(b"no database" * 1000)
    told = Reader(ProjectReader(shop.root))("/")
    assert (200, True) == (told.status, "✓ ok" in told.text)
    assert "sync.erp Demo · Contact ✕ can't be read" in told.text
    assert f"{queue} is damaged (file is not a database)" in told.text
    assert "2 syncs · 1 to look at · of 1 sync nobody knows what waits" in told.text


@pytest.mark.parametrize("rows", [0, 1234])
def test_of_a_whole_table_that_is_dead_the_first_rows_are_shown(
    tmp_path: Path, api: DemoApi, rows: int
) -> None:
    """It is one letter, and may have a million."""
    shop = Shop.at(tmp_path / "shop", url=api.url, files=WHOLE)
    write_contacts(shop.root, **{f"a{number}": "ada@example.com" for number in range(rows)})
    run(shop)
    told = Reader(ProjectReader(shop.root))(f"{SYNC}/queue")
    assert "(the whole table)" in told.text
    assert min(rows, 10) == len(told.all("details"))
    assert ("… and 1,224 rows more, 1,234 in all" if rows else "its content, which has no rows") in told.text


def test_a_run_whose_process_is_gone_has_crashed(tmp_path: Path, api: DemoApi) -> None:
    """It can't say so itself, and the page mustn't wait for it for ever."""
    root = tmp_path / "shop"
    run_id = killed_push(root, api.url)
    look = Reader(ProjectReader(root))
    told = look("/")
    assert "✕ failing" in told.text
    assert "✕ crashed" in told.text
    page = look(f"{SYNC}/runs/{run_id}")
    assert "✕ crashed" in page.text
    assert "What it delivered is among its records; the next run counts it." in page.text
    assert "Took -" in page.text  # nobody knows when it ended, and it doesn't go on
    assert not any("data-live" in each for each in page.all("main"))
    assert (
        "✕ crashed ondatra run full the first run sends the whole table - → 0 - - - - - view"
        in look(SYNC).text
    )
    sync = Shop.at(root, url=api.url).workspace.sync("sync.crm")
    with FileLock(sync.lock, purpose="delivers"):
        assert "▸ running" in look(f"{SYNC}/runs/{run_id}").text


def test_a_crashed_run_shows_its_counts_up_to_the_crash(tmp_path: Path, api: DemoApi) -> None:
    """What it had planned and didn't send is known, too."""
    root = tmp_path / "shop"
    run_id = killed_push(root, api.url)
    run_again(root, api.url)
    look = Reader(ProjectReader(root))
    page = look(f"{SYNC}/runs/{run_id}")
    assert "planned what the queue held for this run 2 0 0 2 attempted" in page.text
    assert "failed 2 0 0 2 succeeded delivered 2 0 0 2 rejected" in page.text
    assert "the API was down, or the run was ended 0 0 0 0 invalid" in page.text
    told = look(SYNC)
    assert "the first run sends the whole table - → 0 - 2 0 0 0 view" in told.text
    (chart,) = told.all("svg")
    told = "Rows of the last run: 2 succeeded, 0 rejected, 0 failed, is retried, 0 invalid."
    assert told in chart["aria-label"]


def run_again(root: Path, url: str) -> None:
    """A turn with nothing to send, which notes what the run before it left."""
    shop = Shop.at(root, url=url)
    workspace = shop.workspace
    with shop.opened(workspace) as engine:
        engine.push(workspace.sync("sync.crm"), Occasion(trigger="ondatra run"))


@pytest.mark.parametrize(
    "address",
    ["/", SYNC, f"{SYNC}/records", f"{SYNC}/reasons", f"{SYNC}/reasons?status=waiting", f"{SYNC}/queue"],
)
def test_what_others_wrote_is_shown_as_text(look: Reader, address: str) -> None:
    """In a payload, a key, a reason, the project's own name: it makes no element, and nothing runs."""
    told = look(address)
    assert [{"src": "/assets/page.js", "defer": ""}] == told.all("script")
    assert [] == [each for each in told.all("i") if "class" not in each]
    assert [] == [each for each in told.all("b") if each]
    names = {name for _, attributes in told.elements for name in attributes}
    assert [] == sorted(name for name in names if name.startswith("on") or name == "style")
    assert "my <shop>" in told.text


def test_hostile_text_is_there_to_be_read(look: Reader) -> None:
    """It isn't taken out either: it may be why a row was refused."""
    assert HOSTILE in look(f"{SYNC}/records?status=rejected").text
    assert HOSTILE_KEY in look(f"{SYNC}/records").text


def test_every_link_of_every_page_leads_somewhere(look: Reader) -> None:
    """A page that is renamed must not leave dead links."""
    seen: set[str] = set()
    coming = ["/"]
    while coming:
        address = coming.pop()
        if address in seen or not address.startswith("/"):
            continue
        seen.add(address)
        answer = look.client.get(address)
        assert 200 == answer.status_code, address
        if answer.headers["content-type"].startswith("text/html"):
            coming += look(address).links
    assert len(seen) > 30


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
        (f"{SYNC}/records.xlsx", "records can't be had as 'xlsx'"),
        (f"{SYNC}/records.csv?limit=many", "limit can't be 'many'"),
    ],
)
def test_what_is_not_there_is_a_sentence(look: Reader, address: str, sentence: str) -> None:
    told = look(address)
    assert 404 == told.status
    assert sentence.casefold() in told.text.casefold()
    assert "Traceback" not in told.text


def test_past_the_end_nothing_is_denied(look: Reader) -> None:
    """A page that is kept may be past the end by now: that there never was anything would be wrong."""
    assert "There are no older runs." in look(f"{SYNC}?page=9").text
    assert "There are no more dead letters." in look(f"{SYNC}/queue?page=9").text
    assert "There are no more records." in look(f"{SYNC}/records?page=9").text


def test_a_sentence_begins_large_but_a_name_stays_as_it_is(look: Reader) -> None:
    """Who copies the sync's id from it has to get the id."""
    assert " sync.crm has no records of a run 'x'" in look(f"{SYNC}/records?run=x").text
    assert " There is no status 'odd'" in look(f"{SYNC}/records?status=odd").text


def test_a_fault_of_the_state_is_its_sentence(tmp_path: Path, api: DemoApi) -> None:
    """With what to do, as the commands say it."""
    shop = Shop.at(tmp_path / "shop", url=api.url)
    write_contacts(shop.root, a1="ada@example.com")
    run_id = run(shop).summary.run_id
    file = Path(shop.workspace.tracking.run_address("sync.crm", run_id or "")) / "records_updated.0.parquet"
    file.write_bytes(b"no Parquet")
    look = Reader(ProjectReader(shop.root))
    for address in (f"{SYNC}/records", f"{SYNC}/records.csv"):
        told = look(address)
        assert 500 == told.status
        assert "can't be read" in told.text
        assert "bring it back from a backup" in told.text


def test_a_page_that_may_change_looks_again_by_itself(look: Reader, runs: list[str]) -> None:
    """And one that doesn't leaves its reader alone."""
    assert ["15"] == [each["data-live"] for each in look("/").all("main")]
    assert not any("data-live" in each for each in look(f"{SYNC}/runs/{runs[1]}").all("main"))


def test_tables_have_captions_and_heads(look: Reader) -> None:
    """Who hears the page has to know what a number is about."""
    for address in ("/", SYNC, f"{SYNC}/records", f"{SYNC}/reasons", f"{SYNC}/queue"):
        told = look(address)
        assert len(told.all("table")) == len(told.all("caption")) > 0
        assert {"col", "row"} == {each["scope"] for each in told.all("th")}
        assert 1 == len(told.all("h1")) == len(told.all("main"))
        assert "#main" in told.links
