"""Records on pages: filtered, searched, grouped by reason, downloaded; and no way to other files."""

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
from support.pages import Looked, Reader
from support.ran_shop import HOSTILE_KEY
from support.record_stores import a_record
from support.shop import Shop

from ondatra_dagster.browser.pages.records import SHOWN
from ondatra_dagster.orchestration.project_reader import ProjectReader
from ondatra_dagster.testing.demo_api import DemoApi
from ondatra_dagster.tracking.addresses import BatchType

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


def keys(told: Looked) -> list[str]:
    """The identifiers that a page shows, in its order."""
    found = []
    for place, (tag, attributes) in enumerate(told.elements):
        if tag == "th" and attributes.get("scope") == "row":
            assert "code" == told.elements[place + 1][0]
            found.append(place)
    texts = told.answer.text.split('scope="row"')[1:]
    return [text.split("<code>")[1].split("</code>")[0] for text in texts[: len(found)]]


@pytest.fixture
def many(tmp_path: Path, api: DemoApi) -> Reader:
    """A run of more records than a page shows, refused for three reasons."""
    shop = Shop.at(tmp_path / "many", url=api.url)
    records = [
        a_record(
            f"k{number:03}",
            payload=f'{{"n":{number},"amount":1.0,"nested":{{"deep":[1,null,"x"]}}}}',
            status="rejected" if number % 2 else "succeeded",
            status_message=("one" if number % 4 == 1 else "=two&more") if number % 2 else None,
        )
        for number in range(2 * SHOWN + 10)
    ]
    shop.workspace.tracking.publish("sync.crm", RUN, BatchType.UPDATED, 0, records)
    return Reader(ProjectReader(shop.root))


def test_records_are_paged_without_gaps_or_repeats(many: Reader) -> None:
    shown: list[str] = []
    address = RECORDS
    for _ in range(4):
        told = many(address)
        shown += keys(told)
        older = [link for link in told.links if "page=" in link]
        ways = [each for each in told.all("a") if each.get("rel") == "next"]
        if not ways:
            break
        address = ways[0]["href"]
        assert address in older
    assert [f"k{number:03}" for number in reversed(range(2 * SHOWN + 10))] == shown


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
def test_records_are_filtered_and_searched(many: Reader, asked: str, expected: list[str]) -> None:
    assert expected == keys(many(f"{RECORDS}?{asked}"))


def test_the_form_keeps_what_was_asked(many: Reader) -> None:
    """The next search is of the same status and run."""
    told = many(f"{RECORDS}?status=rejected&run={RUN}&search=k0")
    inputs = {each["name"]: each.get("value") for each in told.all("input")}
    assert {"status": "rejected", "search": "k0"} == inputs
    assert [RUN] == [each["value"] for each in told.all("option") if "selected" in each]


def test_a_payload_is_readable_as_it_was_written(many: Reader) -> None:
    """1.0 isn't 1, and it opens without a script."""
    told = many(f"{RECORDS}?search=k001")
    assert 1 == len(told.all("details")) == len(told.all("summary"))
    shown = told.answer.text.split("<pre>")[1].split("</pre>")[0]
    assert PAYLOAD == html.unescape(re.sub("<[^>]+>", "", shown))


def test_reasons_are_counted_with_an_example_and_lead_to_their_records(many: Reader) -> None:
    told = many("/syncs/sync.crm/reasons")
    assert "=two&more ✕ rejected 27" in told.text
    links = [link for link in told.links if "reason=" in link]
    assert 2 == len(links)
    for link in links:
        found = many(link)
        assert 27 <= len(keys(found)) <= 28
        assert "Only with the reason" in found.text


def test_reasons_of_a_run_are_asked_for_alone(many: Reader) -> None:
    told = many(f"/syncs/sync.crm/reasons?run={RUN}&status=succeeded")
    assert "no reason was given ✓ succeeded 55 100.0 %" in told.text


def test_reasons_lead_to_just_the_records_that_were_counted(tmp_path: Path, api: DemoApi) -> None:
    """Also where nothing was said: of what was set aside the status says why."""
    shop = Shop.at(tmp_path / "aside", url=api.url)
    made = {"NULL": 2, "DUPLICATE": 3}
    records = [
        a_record(f"{status}{n}", status=status) for status, count in made.items() for n in range(count)
    ]
    shop.workspace.tracking.publish("sync.crm", RUN, BatchType.INVALID, 0, records)
    delivered = [a_record("quiet"), a_record("warned", status_message="no phone")]
    shop.workspace.tracking.publish("sync.crm", RUN, BatchType.UPDATED, 0, delivered)
    look = Reader(ProjectReader(shop.root))
    told = look("/syncs/sync.crm/reasons?status=invalid")
    assert "its key comes more than once ! DUPLICATE 3 60.0 %" in told.text
    assert "there is a null in its key ! NULL 2 40.0 %" in told.text
    found = [keys(look(link)) for link in told.links if "records?" in link and "reason=" in link]
    assert [["DUPLICATE2", "DUPLICATE1", "DUPLICATE0"], ["NULL1", "NULL0"]] == found
    told = look("/syncs/sync.crm/reasons?status=succeeded")
    found = [keys(look(link)) for link in told.links if "records?" in link and "reason=" in link]
    assert [["quiet"], ["warned"]] == sorted(found)
    told = look(f"{RECORDS}?status=NULL&reason=")
    assert {"status": "NULL", "reason": "", "search": ""} == {
        each["name"]: each.get("value") for each in told.all("input")
    }
    assert "Only without a reason" in told.text


def test_records_are_grouped_by_the_reasons_of_their_status(many: Reader) -> None:
    """Who looks at what was set aside doesn't ask about rejects."""
    for status in ("succeeded", "rejected", "invalid", "waiting"):
        assert f"/syncs/sync.crm/reasons?status={status}" in many(f"{RECORDS}?status={status}").links
    assert "/syncs/sync.crm/reasons" in many(f"{RECORDS}?status=pending").links


def test_a_run_that_the_history_has_lost_leads_to_its_records(many: Reader) -> None:
    """The history is a file of its own, and may be gone while records are kept."""
    told = many(f"/syncs/sync.crm/runs/{RUN}")
    assert 200 == told.status
    assert "its records are kept" in told.text
    assert f"{RECORDS}?run={RUN}" in told.links


@pytest.mark.parametrize("limit", [None, 3])
def test_what_is_found_is_downloaded_in_each_format(many: Reader, limit: int | None) -> None:
    asked = "status=rejected" + (f"&limit={limit}" if limit else "")
    expected = [f"k{number:03}" for number in reversed(range(1, 2 * SHOWN + 10, 2))][:limit]
    files = {ending: many.client.get(f"{RECORDS}.{ending}?{asked}") for ending in ("csv", "json", "parquet")}
    rows = list(csv.DictReader(io.StringIO(files["csv"].text)))
    assert expected == [row["identifier"] for row in rows]
    assert expected == [row["identifier"] for row in orjson.loads(files["json"].content)]
    assert expected == pq.read_table(io.BytesIO(files["parquet"].content))["identifier"].to_pylist()
    assert "'=two&more" in {row["status_message"] for row in rows}  # no formula
    assert 'attachment; filename="sync.crm-rejected.csv"' == files["csv"].headers["content-disposition"]


def test_a_key_with_html_is_found_and_downloaded(look: Reader) -> None:
    told = look(f"{RECORDS}?search={quote(HOSTILE_KEY)}")
    assert HOSTILE_KEY in told.text
    assert HOSTILE_KEY in look.client.get(f"{RECORDS}.csv?search={quote('<b')}").text.replace('""', '"')


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
def beside(ran: Shop) -> Path:
    """Files that look like a run's, next to the store and above it."""
    tracking = ran.root / ".ondatra" / "tracking"
    for folder in (tracking, tracking / "sync_tracking_datasets", tracking.parent, ran.root, ran.root.parent):
        outside = folder / "outside"
        outside.mkdir()
        (outside / "metadata.json").write_text(f'{{"x": "{CANARY}"}}')
        ran.workspace.tracking.publish("sync.other", RUN, BatchType.UPDATED, 0, [a_record(CANARY)])
        other = Path(ran.workspace.tracking.run_address("sync.other", RUN))
        (outside / "records_updated.0.parquet").write_bytes(
            (other / "records_updated.0.parquet").read_bytes()
        )
    return ran.root


@pytest.mark.usefixtures("beside")
@pytest.mark.parametrize(("place", "odd"), list(itertools.product(PLACES, ODD)))
def test_no_address_leads_out_of_the_store(look: Reader, place: str, odd: str) -> None:
    """Not by a sync's name, nor a run's, nor anything else that stands in an address."""
    answer = look.client.get_as_it_stands(place.format(odd))
    assert answer.status_code in (400, 404)
    assert CANARY not in answer.text
    assert "x-injected" not in answer.headers
    assert "Traceback" not in answer.text


@pytest.mark.parametrize("odd", [*ODD, "..%2f..%2f", "*", "%", "_"])
@pytest.mark.parametrize("asked", ["search", "reason", "other"])
def test_an_odd_word_finds_nothing_and_harms_nothing(look: Reader, asked: str, odd: str) -> None:
    answer = look.client.get(f"{RECORDS}?{asked}={odd}")
    assert 200 == answer.status_code
    assert CANARY not in answer.text


@pytest.mark.usefixtures("beside")
def test_records_of_another_project_in_the_same_store_are_not_shown(look: Reader) -> None:
    """The store may be shared; the page is of this project's syncs."""
    assert 404 == look("/syncs/sync.other/records").status
