"""The demo API's one page: what it holds and the last calls, as HTML.

Everything that came over the wire is escaped here, and nowhere else is HTML made.
"""

import html
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources

from ondatra_dagster.changes import Json
from ondatra_dagster.testing.calls import Call
from ondatra_dagster.testing.demo_api.collection import Record
from ondatra_dagster.testing.demo_api.state import DemoState

SHOWN_CALLS = 25


def render_page(state: DemoState) -> str:
    """The page as it is now."""
    held = state.destination.held()
    calls = state.calls[: -SHOWN_CALLS - 1 : -1]
    template = resources.files(__package__).joinpath("page.html").read_text(encoding="utf-8")
    blocks = {
        **{f"{name}_count": str(len(records)) for name, records in held.items()},
        **{name: _table([_flat(record) for record in records.values()]) for name, records in held.items()},
        "call_count": str(len(state.calls)),
        "refused_count": str(sum(call.status >= 400 for call in state.calls)),
        "calls": "".join(map(_call_row, calls)) or '<tr><td colspan="4" class="none">none yet</td></tr>',
    }
    for name, block in blocks.items():
        template = template.replace(f"<!--{name}-->", block, 1)
    return template


def _flat(record: Record) -> Mapping[str, Json]:
    """A record in one row: an invoice's lines as text."""
    lines = record.get("lines")
    if not isinstance(lines, list):
        return record
    texts = [f"{line.get('quantity')} {line.get('product')}" for line in lines if isinstance(line, dict)]
    return {**record, "lines": ", ".join(texts)}


def _table(records: Sequence[Mapping[str, Json]]) -> str:
    if not records:
        return '<p class="none">nothing yet</p>'
    columns = list(dict.fromkeys(name for record in records for name in record))
    head = "".join(f"<th>{_text(name)}</th>" for name in columns)
    body = "".join(_row(record.get(name) for name in columns) for record in records)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _row(values: Iterable[Json]) -> str:
    return "<tr>" + "".join(f"<td>{_text(value)}</td>" for value in values) + "</tr>"


def _call_row(call: Call) -> str:
    tone = "ok" if 200 <= call.status < 400 else "bad"
    status = "no answer" if call.status == 0 else str(call.status)
    remark = "repeated: not done twice" if call.is_repeat else call.message
    return (
        f"<tr><td>{call.at:%H:%M:%S}</td><td><b>{_text(call.method)}</b> {_text(call.path)}</td>"
        f'<td class="{tone}">{status}</td><td>{_text(remark)}</td></tr>'
    )


def _text(value: Json) -> str:
    return "" if value is None else html.escape(str(value))
