"""What the demo API holds: a CRM's contacts and timeline, an ERP's invoices and price list.

No HTTP here: a request comes as method, path and body, an answer leaves as status and body.
"""

from collections.abc import Callable, Mapping
from typing import Any

from ondatra_dagster.changes import Json
from ondatra_dagster.testing.calls import Answer, refusal
from ondatra_dagster.testing.demo_api.bulk import Bulk
from ondatra_dagster.testing.demo_api.collection import (
    Collection,
    Record,
    contact_fault,
    invoice_fault,
    no_fault,
    price_fault,
)


class Destination:
    """A small CRM and a small ERP."""

    def __init__(self) -> None:
        self.contacts = Collection(noun="contact", id_field="customer_id", fault_of=contact_fault)
        self.invoices = Collection(noun="invoice", id_field="invoice_id", fault_of=invoice_fault)
        self.timeline = Collection(noun="timeline entry", id_field="entry_id", fault_of=no_fault)
        self.prices = Collection(noun="price", id_field="product_id", fault_of=price_fault)
        self.bulk = Bulk(self.contacts)
        self.imports = Bulk(self.timeline)
        self._routes: Mapping[tuple[str, str, bool], Callable[[str, Record], Answer]] = {
            ("GET", "crm/contacts", False): self.contacts.list,
            ("POST", "crm/contacts", False): self.contacts.create,
            ("GET", "crm/contacts", True): self.contacts.get,
            ("PATCH", "crm/contacts", True): self.contacts.change,
            ("DELETE", "crm/contacts", True): self.contacts.delete,
            ("POST", "crm/batches", False): self.bulk.batch,
            ("POST", "crm/jobs", False): self.bulk.submit,
            ("GET", "crm/jobs", True): self.bulk.job,
            ("GET", "crm/timeline", False): self.timeline.list,
            ("POST", "crm/imports", False): self.imports.submit,
            ("GET", "crm/imports", True): self.imports.job,
            ("GET", "erp/invoices", False): self.invoices.list,
            ("GET", "erp/invoices", True): self.invoices.get,
            ("PUT", "erp/invoices", True): self.invoices.put,
            ("DELETE", "erp/invoices", True): self.invoices.delete,
            ("GET", "erp/prices", False): self.prices.list,
            ("PUT", "erp/prices", False): self.prices.replace_all,
        }

    def held(self) -> Mapping[str, dict[str, Record]]:
        """All records, by what they are and by their ids."""
        return {
            "contacts": self.contacts.records,
            "timeline": self.timeline.records,
            "invoices": self.invoices.records,
            "prices": self.prices.records,
        }

    def jobs(self) -> Mapping[str, dict[str, dict[str, Any]]]:
        """The jobs that were begun, by where and by their ids."""
        return {"jobs": self.bulk.jobs, "imports": self.imports.jobs}

    def clear(self) -> None:
        for records in self.held().values():
            records.clear()
        self.bulk.clear()
        self.imports.clear()

    def answer(self, method: str, path: tuple[str, ...], body: Json) -> Answer:
        """Do what is asked, or say why not. `path` is the path's segments, each unquoted."""
        collection, record_id = "/".join(path[:2]), "/".join(path[2:])
        do = self._routes.get((method, collection, bool(record_id)))
        if do is None:
            return refusal(404, f"there is no {method} /{'/'.join(path)} here")
        if method in {"GET", "DELETE"}:
            return do(record_id, {})
        if not isinstance(body, dict):
            return refusal(400, "the body isn't a JSON object")
        return do(record_id, body)
