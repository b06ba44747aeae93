"""The record pages: filters, search, reasons and downloads, but no access to other files."""

import csv
import html
import io
import itertools
import re
from pathlib import Path
from urllib.parse import quote

import orjson
import pyarrow.parquet as pq
import pytest
from support.files.sample_records import build_record
from support.projects.shop_project import ShopProject
from support.projects.shop_with_history import HOSTILE_KEY
from support.projects.ui_client import PageReader, ParsedPage

from ondatra_dagster.app.workspace import ProjectCache
from ondatra_dagster.records.file_paths import RecordFileType
from ondatra_dagster.testing.demo_api import DemoApi
from ondatra_dagster.ui.pages.record_list_page import PAGE_SIZE

RECORDS = "/syncs/sync.crm/records"
RUN = "20261118T120000Z-abcdef"
PAYLOAD = """{
  "n": 1,
  "amount": 1.0,
  "nested": {
    "deep": [
      1,
      null,
      "x"
    ]
  }
}"""
CANARY = "canary-outside-of-the-store"


def keys(told: ParsedPage) -> list[str]:
    """Return the identifiers that a page shows, in its order."""
    places = []
    for place, (tag, attributes) in enumerate(told.elements):
        if tag == "th" and attributes.get("scope") == "row":
            assert "code" == told.elements[place + 1][0]
            places.append(place)
    texts = told.response.text.split('scope="row"')[1:]
    return [text.split("<code>")[1].split("</code>")[0] for text in texts[: len(places)]]


@pytest.fixture
def reader_of_many_records(tmp_path: Path, api: DemoApi) -> PageReader:
    """Return a reader of a run with more records than one page shows, and with two reasons for rejects."""
    shop = ShopProject.create(tmp_path / "many", url=api.url)
    records = [
        build_record(
            f"k{number:03}",
            payload=f'{{"n":{number},"amount":1.0,"nested":{{"deep":[1,null,"x"]}}}}',
            status="rejected" if number % 2 else "succeeded",
            status_message=("one" if number % 4 == 1 else "=two&more") if number % 2 else None,
        )
        for number in range(2 * PAGE_SIZE + 10)
    ]
    shop.workspace.tracking.publish_records("sync.crm", RUN, RecordFileType.UPDATED, 0, records)
    return PageReader(ProjectCache(shop.root))


def test_records_are_paged_without_gaps_or_repetitions(reader_of_many_records: PageReader) -> None:
    shown: list[str] = []
    address = RECORDS
    for _ in range(4):
        page = reader_of_many_records(address)
        shown += keys(page)
        older = [link for link in page.link_addresses if "page=" in link]
        ways = [anchor for anchor in page.tag_attributes("a") if anchor.get("rel") == "next"]
        if not ways:
            break
        address = ways[0]["href"]
        assert address in older
    assert [f"k{number:03}" for number in reversed(range(2 * PAGE_SIZE + 10))] == shown


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("status=succeeded&search=k00", ["k008", "k006", "k004", "k002", "k000"]),
        ("status=rejected&search=k00", ["k009", "k007", "k005", "k003", "k001"]),
        ("status=rejected&search=k00&reason=one", ["k009", "k005", "k001"]),
        (f"run={RUN}&search=k007", ["k007"]),
        ("search=7", []),
        ("status=invalid", []),
        ("status=waiting", []),
    ],
)
def test_records_are_filtered_and_searched(reader_of_many_records: PageReader, asked: str, expected: list[str]) -> None:
    assert expected == keys(reader_of_many_records(f"{RECORDS}?{asked}"))


def test_the_form_keeps_the_selected_filters(reader_of_many_records: PageReader) -> None:
    """The next search has the same status and run."""
    page = reader_of_many_records(f"{RECORDS}?status=rejected&run={RUN}&search=k0")
    inputs = {element["name"]: element.get("value") for element in page.tag_attributes("input")}
    assert {"status": "rejected", "search": "k0"} == inputs
    assert [RUN] == [element["value"] for element in page.tag_attributes("option") if "selected" in element]


def test_a_payload_is_formatted_without_a_change_of_its_values(reader_of_many_records: PageReader) -> None:
    """1.0 isn't shown as 1, and the payload opens without a script."""
    page = reader_of_many_records(f"{RECORDS}?search=k001")
    assert 1 == len(page.tag_attributes("details")) == len(page.tag_attributes("summary"))
    shown = page.response.text.split("<pre>")[1].split("</pre>")[0]
    assert PAYLOAD == html.unescape(re.sub("<[^>]+>", "", shown))


def test_reasons_are_counted_and_link_to_their_records(reader_of_many_records: PageReader) -> None:
    page = reader_of_many_records("/syncs/sync.crm/reasons")
    assert "=two&more ✕ rejected 27" in page.text
    links = [link for link in page.link_addresses if "reason=" in link]
    assert 2 == len(links)
    for link in links:
        records_page = reader_of_many_records(link)
        assert 27 <= len(keys(records_page)) <= 28
        assert "Only with the reason" in records_page.text


def test_reasons_of_a_single_run_are_shown(reader_of_many_records: PageReader) -> None:
    page = reader_of_many_records(f"/syncs/sync.crm/reasons?run={RUN}&status=succeeded")
    assert "no reason was given ✓ succeeded 55 100.0 %" in page.text


def test_reasons_link_to_exactly_the_counted_records(tmp_path: Path, api: DemoApi) -> None:
    """This includes records without a message: the status of an invalid row says why."""
    shop = ShopProject.create(tmp_path / "aside", url=api.url)
    counts = {"NULL": 2, "DUPLICATE": 3}
    records = [build_record(f"{status}{n}", status=status) for status, count in counts.items() for n in range(count)]
    shop.workspace.tracking.publish_records("sync.crm", RUN, RecordFileType.INVALID, 0, records)
    delivered = [build_record("quiet"), build_record("warned", status_message="no phone")]
    shop.workspace.tracking.publish_records("sync.crm", RUN, RecordFileType.UPDATED, 0, delivered)
    look = PageReader(ProjectCache(shop.root))
    page = look("/syncs/sync.crm/reasons?status=invalid")
    assert "its key isn't unique ! DUPLICATE 3 60.0 %" in page.text
    assert "its key has a null ! NULL 2 40.0 %" in page.text
    identifiers = [keys(look(link)) for link in page.link_addresses if "records?" in link and "reason=" in link]
    assert [["DUPLICATE2", "DUPLICATE1", "DUPLICATE0"], ["NULL1", "NULL0"]] == identifiers
    page = look("/syncs/sync.crm/reasons?status=succeeded")
    identifiers = [keys(look(link)) for link in page.link_addresses if "records?" in link and "reason=" in link]
    assert [["quiet"], ["warned"]] == sorted(identifiers)
    page = look(f"{RECORDS}?status=NULL&reason=")
    assert {"status": "NULL", "reason": "", "search": ""} == {
        element["name"]: element.get("value") for element in page.tag_attributes("input")
    }
    assert "Only without a reason" in page.text


def test_the_link_to_reasons_keeps_the_status(reader_of_many_records: PageReader) -> None:
    """A user who looks at invalid rows doesn't ask about rejects."""
    for status in ("succeeded", "rejected", "invalid", "waiting"):
        assert (
            f"/syncs/sync.crm/reasons?status={status}"
            in reader_of_many_records(f"{RECORDS}?status={status}").link_addresses
        )
    assert "/syncs/sync.crm/reasons" in reader_of_many_records(f"{RECORDS}?status=pending").link_addresses


def test_a_run_that_is_missing_in_the_history_links_to_its_records(reader_of_many_records: PageReader) -> None:
    """The history is a separate file, and may be lost while records are kept."""
    page = reader_of_many_records(f"/syncs/sync.crm/runs/{RUN}")
    assert 200 == page.status
    assert "its records are kept" in page.text
    assert f"{RECORDS}?run={RUN}" in page.link_addresses


@pytest.mark.parametrize("limit", [None, 3])
def test_found_records_can_be_downloaded_in_each_format(reader_of_many_records: PageReader, limit: int | None) -> None:
    query = "status=rejected" + (f"&limit={limit}" if limit else "")
    expected = [f"k{number:03}" for number in reversed(range(1, 2 * PAGE_SIZE + 10, 2))][:limit]
    files = {
        ending: reader_of_many_records.client.get(f"{RECORDS}.{ending}?{query}")
        for ending in ("csv", "json", "parquet")
    }
    rows = list(csv.DictReader(io.StringIO(files["csv"].text)))
    assert expected == [row["identifier"] for row in rows]
    assert expected == [row["identifier"] for row in orjson.loads(files["json"].content)]
    assert expected == pq.read_table(io.BytesIO(files["parquet"].content))["identifier"].to_pylist()
    assert "'=two&more" in {row["status_message"] for row in rows}  # not a formula
    assert 'attachment; filename="sync.crm-rejected.csv"' == files["csv"].headers["content-disposition"]


def test_a_key_with_html_is_found_and_downloaded(get_page: PageReader) -> None:
    page = get_page(f"{RECORDS}?search={quote(HOSTILE_KEY)}")
    assert HOSTILE_KEY in page.text
    assert HOSTILE_KEY in get_page.client.get(f"{RECORDS}.csv?search={quote('<b')}").text.replace('""', '"')


ODD = [
    "..",
    "../..",
    "../../../../outside",
    "%2e%2e",
    "..%2f..%2f..%2foutside",
    "..%5c..%5coutside",
    "%2fetc%2fpasswd",
    "sync.crm%2f..%2f..",
    "sync.crm%00",
    "%00",
    "C:%5cwindows",
    "file:%2f%2f%2fetc",
    "outside",
    "a" * 5000,
    "%F0%9F%92%A5",
    "%ff%fe",
    "%25%32%65",
    "{}",
    "'--",
    "%0d%0aX-Injected:%201",
]
PLACES = [
    "/syncs/{}",
    "/syncs/{}/records",
    "/syncs/{}/records.csv",
    "/syncs/{}/queue",
    "/syncs/sync.crm/runs/{}",
    "/syncs/{}/runs/x",
    "/syncs/sync.crm/records?run={}",
    "/syncs/sync.crm/records?status={}",
    "/syncs/sync.crm/records?page={}",
    "/syncs/sync.crm/records.{}",
    "/syncs/sync.crm/records.csv?run={}",
    "/syncs/sync.crm/reasons?run={}",
    "/syncs/sync.crm/reasons?status={}",
    "/assets/{}",
    "/{}",
]


@pytest.fixture(scope="module")
def files_outside_tracking(shop_with_history: ShopProject) -> Path:
    """Write files that look like a run's, next to the store and above it, and return the project's folder."""
    tracking = shop_with_history.root / ".ondatra" / "tracking"
    for folder in (
        tracking,
        tracking / "sync_tracking_datasets",
        tracking.parent,
        shop_with_history.root,
        shop_with_history.root.parent,
    ):
        outside = folder / "outside"
        outside.mkdir()
        (outside / "metadata.json").write_text(f'{{"x": "{CANARY}"}}')
        shop_with_history.workspace.tracking.publish_records(
            "sync.other", RUN, RecordFileType.UPDATED, 0, [build_record(CANARY)]
        )
        other = Path(shop_with_history.workspace.tracking.run_address("sync.other", RUN))
        (outside / "records_updated.0.parquet").write_bytes((other / "records_updated.0.parquet").read_bytes())
    return shop_with_history.root


@pytest.mark.usefixtures("files_outside_tracking")
@pytest.mark.parametrize(("place", "odd"), list(itertools.product(PLACES, ODD)))
def test_no_address_leads_out_of_the_store(get_page: PageReader, place: str, odd: str) -> None:
    """A sync's name, a run's name or any other part of an address can't do so."""
    answer = get_page.client.get_raw_path(place.format(odd))
    assert answer.status_code in (400, 404)
    assert CANARY not in answer.text
    assert "x-injected" not in answer.headers
    assert "Traceback" not in answer.text


@pytest.mark.parametrize("odd", [*ODD, "..%2f..%2f", "*", "%", "_"])
@pytest.mark.parametrize("asked", ["search", "reason", "other"])
def test_an_unusual_filter_finds_nothing_and_does_no_harm(get_page: PageReader, asked: str, odd: str) -> None:
    answer = get_page.client.get(f"{RECORDS}?{asked}={odd}")
    assert 200 == answer.status_code
    assert CANARY not in answer.text


@pytest.mark.usefixtures("files_outside_tracking")
def test_records_of_another_project_in_the_same_store_are_not_shown(get_page: PageReader) -> None:
    """The store may be shared, but the pages show only this project's syncs."""
    assert 404 == get_page("/syncs/sync.other/records").status
