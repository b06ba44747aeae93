"""Records of one sort, and the rules by which they are taken and refused.

No HTTP here: a request comes as method, path and body, an answer leaves as status and body.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from ondatra_dagster.changes import Json
from ondatra_dagster.testing.calls import Answer, refusal

Record: TypeAlias = dict[str, Json]


def contact_fault(contact: Mapping[str, Json]) -> str | None:
    """What the CRM has against a contact."""
    email = contact.get("email")
    if not isinstance(email, str) or "@" not in email.strip("@"):
        return f"email {email!r} isn't an address"
    return None


def invoice_fault(invoice: Mapping[str, Json]) -> str | None:
    """What the ERP has against an invoice."""
    lines = invoice.get("lines")
    if not isinstance(lines, list) or not lines:
        return "an invoice needs at least one line"
    for number, line in enumerate(lines, start=1):
        quantity = line.get("quantity") if isinstance(line, dict) else None
        if not isinstance(quantity, int) or quantity < 1:
            return f"line {number} has no quantity of 1 or more"
    return None


def price_fault(price: Mapping[str, Json]) -> str | None:
    """What the ERP has against a price."""
    try:
        is_price = float(str(price.get("unit_price"))) > 0
    except ValueError:
        is_price = False
    return None if is_price else f"{price.get('product_id')} has no price above 0"


def no_fault(_record: Mapping[str, Json]) -> str | None:
    """Whatever it is, it is taken."""
    return None


@dataclasses.dataclass(kw_only=True)
class Collection:
    """Records of one sort, by their id."""

    noun: str
    id_field: str
    fault_of: Callable[[Mapping[str, Json]], str | None]
    records: dict[str, Record] = dataclasses.field(default_factory=dict)

    def list(self, _record_id: str, _body: Record) -> Answer:
        return Answer(200, list(self.records.values()))

    def get(self, record_id: str, _body: Record) -> Answer:
        return Answer(200, self.records[record_id]) if record_id in self.records else self._unknown(record_id)

    def create(self, _record_id: str, body: Record) -> Answer:
        if fault := self.nameless(body):
            return refusal(400, fault)
        record_id = str(body[self.id_field])
        if record_id in self.records:
            return refusal(409, f"{self.noun} {record_id} exists already")
        return self._keep(201, record_id, body)

    def change(self, record_id: str, body: Record) -> Answer:
        if record_id not in self.records:
            return self._unknown(record_id)
        return self._keep(200, record_id, {**self.records[record_id], **body})

    def put(self, record_id: str, body: Record) -> Answer:
        return self._keep(200 if record_id in self.records else 201, record_id, body)

    def replace_all(self, _record_id: str, body: Record) -> Answer:
        """These records and no others; or nothing at all, where any of them is refused."""
        records: Any = body.get(f"{self.noun}s")
        if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
            return refusal(400, f"the body needs a list of {self.noun}s")
        faults = [fault for each in records if (fault := self.nameless(each) or self.fault_of(each))]
        if faults:
            return refusal(422, "; ".join(faults))
        self.records.clear()
        self.records.update({str(record[self.id_field]): record for record in records})
        return Answer(200, {"taken": len(records)})

    def delete(self, record_id: str, _body: Record) -> Answer:
        return Answer(204) if self.records.pop(record_id, None) is not None else self._unknown(record_id)

    def nameless(self, record: Record) -> str | None:
        """What is wrong with a record that has no id."""
        missing = record.get(self.id_field) in (None, "")
        return f"a {self.noun} needs its {self.id_field}" if missing else None

    def _keep(self, status: int, record_id: str, record: Record) -> Answer:
        named = record.get(self.id_field)
        if named is not None and str(named) != record_id:
            return refusal(400, f"the path says {record_id}, the body {named}")
        if fault := self.fault_of(record):
            return refusal(422, fault)
        self.records[record_id] = record
        return Answer(status, record)

    def _unknown(self, record_id: str) -> Answer:
        return refusal(404, f"there is no {self.noun} {record_id}")
