"""The records of the demo CRM and ERP, and the rules by which they accept or refuse records.

This module doesn't know HTTP: a request is a method, a path and a body; an answer is a status and a body.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from ondatra_dagster.row_changes import Json
from ondatra_dagster.testing.fake_api_server import Answer, refusal

Record: TypeAlias = dict[str, Json]


def find_contact_fault(contact: Mapping[str, Json]) -> str | None:
    """Return why the CRM refuses a contact; None if it accepts the contact."""
    email = contact.get("email")
    if not isinstance(email, str) or "@" not in email.strip("@"):
        return f"email {email!r} isn't an address"
    return None


def find_invoice_fault(invoice: Mapping[str, Json]) -> str | None:
    """Return why the ERP refuses an invoice; None if it accepts the invoice."""
    lines = invoice.get("lines")
    if not isinstance(lines, list) or not lines:
        return "an invoice needs at least one line"
    for number, line in enumerate(lines, start=1):
        quantity = line.get("quantity") if isinstance(line, dict) else None
        if not isinstance(quantity, int) or quantity < 1:
            return f"line {number} has no quantity of 1 or more"
    return None


def find_price_fault(price: Mapping[str, Json]) -> str | None:
    """Return why the ERP refuses a price; None if it accepts the price."""
    try:
        is_price = float(str(price.get("unit_price"))) > 0
    except ValueError:
        is_price = False
    return None if is_price else f"{price.get('product_id')} has no price above 0"


@dataclasses.dataclass(kw_only=True)
class RecordCollection:
    """A collection of records of one type, by id."""

    noun: str
    id_field: str
    find_fault: Callable[[Mapping[str, Json]], str | None]
    records: dict[str, Record] = dataclasses.field(default_factory=dict)

    def list_records(self, _record_id: str, _body: Record) -> Answer:
        return Answer(200, list(self.records.values()))

    def get_record(self, record_id: str, _body: Record) -> Answer:
        return Answer(200, self.records[record_id]) if record_id in self.records else self._not_found(record_id)

    def create_record(self, _record_id: str, body: Record) -> Answer:
        if fault := self.find_missing_id(body):
            return refusal(400, fault)
        record_id = str(body[self.id_field])
        if record_id in self.records:
            return refusal(409, f"{self.noun} {record_id} exists already")
        return self._store_record(201, record_id, body)

    def update_record(self, record_id: str, body: Record) -> Answer:
        if record_id not in self.records:
            return self._not_found(record_id)
        return self._store_record(200, record_id, {**self.records[record_id], **body})

    def put_record(self, record_id: str, body: Record) -> Answer:
        return self._store_record(200 if record_id in self.records else 201, record_id, body)

    def replace_records(self, _record_id: str, body: Record) -> Answer:
        """Replace all records of the collection by those in the body. Change nothing if one of these is refused."""
        records: Any = body.get(f"{self.noun}s")
        if not isinstance(records, list) or not all(isinstance(record, dict) for record in records):
            return refusal(400, f"the body needs a list of {self.noun}s")
        faults = [
            fault
            for new_record in records
            if (fault := self.find_missing_id(new_record) or self.find_fault(new_record))
        ]
        if faults:
            return refusal(422, "; ".join(faults))
        self.records.clear()
        self.records.update({str(record[self.id_field]): record for record in records})
        return Answer(200, {"taken": len(records)})

    def delete_record(self, record_id: str, _body: Record) -> Answer:
        return Answer(204) if self.records.pop(record_id, None) is not None else self._not_found(record_id)

    def find_missing_id(self, record: Record) -> str | None:
        """Return a message if the record has no id; None if it has an id."""
        is_missing = record.get(self.id_field) in (None, "")
        return f"a {self.noun} needs its {self.id_field}" if is_missing else None

    def _store_record(self, status: int, record_id: str, record: Record) -> Answer:
        body_id = record.get(self.id_field)
        if body_id is not None and str(body_id) != record_id:
            return refusal(400, f"the path says {record_id}, the body {body_id}")
        if fault := self.find_fault(record):
            return refusal(422, fault)
        self.records[record_id] = record
        return Answer(status, record)

    def _not_found(self, record_id: str) -> Answer:
        return refusal(404, f"there is no {self.noun} {record_id}")


class BulkEndpoints:
    """The endpoints for batches and jobs that write to one collection."""

    def __init__(self, collection: RecordCollection) -> None:
        self.jobs: dict[str, dict[str, Any]] = {}  # id → the job's results, and how often the job was polled
        self.polls = 1  # the number of polls of a job that are answered with "running"
        self._collection = collection

    def run_batch(self, _record_id: str, body: Record) -> Answer:
        """Apply all operations in the body, or none of them if one is refused."""
        return self._with_operations(body, self._apply_all_or_none)

    def submit_job(self, _record_id: str, body: Record) -> Answer:
        return self._with_operations(body, self._begin_job)

    def poll_job(self, job_id: str, _body: Record) -> Answer:
        """Answer a poll with the job's status. Add the job's results once it is complete."""
        if job_id not in self.jobs:
            return refusal(404, f"there is no job {job_id}")
        job = self.jobs[job_id]
        job["asked"] += 1
        if job["asked"] <= self.polls:
            return Answer(200, {"id": job_id, "status": "running"})
        return Answer(200, {"id": job_id, "status": "complete", "results": job["results"]})

    def clear(self) -> None:
        self.jobs.clear()
        self.polls = 1

    def _with_operations(self, body: Record, run_operations: Callable[[list[Any]], Answer]) -> Answer:
        operations = body.get("operations")
        if not isinstance(operations, list) or not all(map(_is_operation, operations)):
            return refusal(400, "the body needs a list of operations, each with a key, and upsert or delete")
        return run_operations(operations)

    def _apply_all_or_none(self, operations: list[Any]) -> Answer:
        faults = {operation["key"]: fault for operation in operations if (fault := self._find_fault(operation))}
        if faults:
            return refusal(422, "; ".join(f"{key}: {fault}" for key, fault in faults.items()))
        for operation in operations:
            self._apply_operation(operation)
        return Answer(200, {"taken": len(operations)})

    def _begin_job(self, operations: list[Any]) -> Answer:
        results: list[Json] = []
        for operation in operations:
            fault = self._find_fault(operation)
            if not fault:
                self._apply_operation(operation)
            results.append([operation["key"], f"reject: {fault}" if fault else "ok"])
        job_id = f"J-{len(self.jobs) + 1}"
        self.jobs[job_id] = {"results": results, "asked": 0}
        return Answer(202, {"id": job_id, "status": "running"})

    def _find_fault(self, operation: Any) -> str | None:
        if "delete" in operation:
            return None
        record = operation["upsert"]
        return self._collection.find_missing_id(record) or self._collection.find_fault(record)

    def _apply_operation(self, operation: Any) -> None:
        records = self._collection.records
        if "delete" in operation:
            records.pop(str(operation["delete"]), None)
        else:
            record = operation["upsert"]
            record_id = str(record[self._collection.id_field])
            records[record_id] = {**records.get(record_id, {}), **record}


def _is_operation(operation: object) -> bool:
    return (
        isinstance(operation, dict)
        and isinstance(operation.get("key"), str)
        and ("delete" in operation) is not isinstance(operation.get("upsert"), dict)
    )


class CrmAndErp:
    """A small demo CRM and a small demo ERP."""

    def __init__(self) -> None:
        self.contacts = RecordCollection(noun="contact", id_field="customer_id", find_fault=find_contact_fault)
        self.invoices = RecordCollection(noun="invoice", id_field="invoice_id", find_fault=find_invoice_fault)
        self.timeline = RecordCollection(noun="timeline entry", id_field="entry_id", find_fault=lambda _: None)
        self.prices = RecordCollection(noun="price", id_field="product_id", find_fault=find_price_fault)
        self.bulk = BulkEndpoints(self.contacts)
        self.imports = BulkEndpoints(self.timeline)
        self._routes: Mapping[tuple[str, str, bool], Callable[[str, Record], Answer]] = {
            ("GET", "crm/contacts", False): self.contacts.list_records,
            ("POST", "crm/contacts", False): self.contacts.create_record,
            ("GET", "crm/contacts", True): self.contacts.get_record,
            ("PATCH", "crm/contacts", True): self.contacts.update_record,
            ("DELETE", "crm/contacts", True): self.contacts.delete_record,
            ("POST", "crm/batches", False): self.bulk.run_batch,
            ("POST", "crm/jobs", False): self.bulk.submit_job,
            ("GET", "crm/jobs", True): self.bulk.poll_job,
            ("GET", "crm/timeline", False): self.timeline.list_records,
            ("POST", "crm/imports", False): self.imports.submit_job,
            ("GET", "crm/imports", True): self.imports.poll_job,
            ("GET", "erp/invoices", False): self.invoices.list_records,
            ("GET", "erp/invoices", True): self.invoices.get_record,
            ("PUT", "erp/invoices", True): self.invoices.put_record,
            ("DELETE", "erp/invoices", True): self.invoices.delete_record,
            ("GET", "erp/prices", False): self.prices.list_records,
            ("PUT", "erp/prices", False): self.prices.replace_records,
        }

    def records_by_collection(self) -> Mapping[str, dict[str, Record]]:
        """Return all records: for each collection, record by id."""
        return {
            "contacts": self.contacts.records,
            "timeline": self.timeline.records,
            "invoices": self.invoices.records,
            "prices": self.prices.records,
        }

    def jobs_by_endpoint(self) -> Mapping[str, dict[str, dict[str, Any]]]:
        """Return the submitted jobs: for each endpoint, job by id."""
        return {"jobs": self.bulk.jobs, "imports": self.imports.jobs}

    def clear(self) -> None:
        for records in self.records_by_collection().values():
            records.clear()
        self.bulk.clear()
        self.imports.clear()

    def answer_request(self, method: str, path: tuple[str, ...], body: Json) -> Answer:
        """Carry out a request, or refuse it with a reason. `path` has the path's segments, each unquoted."""
        collection, record_id = "/".join(path[:2]), "/".join(path[2:])
        handler = self._routes.get((method, collection, bool(record_id)))
        if handler is None:
            return refusal(404, f"there is no {method} /{'/'.join(path)} here")
        if method in {"GET", "DELETE"}:
            return handler(record_id, {})
        if not isinstance(body, dict):
            return refusal(400, "the body isn't a JSON object")
        return handler(record_id, body)
