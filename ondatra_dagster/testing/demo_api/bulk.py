"""The CRM's doors for many records at once: a batch, which is taken whole or not at all, and a job.

Both take {"operations": [{"key": …, "upsert": {…}}, {"key": …, "delete": "C-1"}, …]}, where a key is what the
caller calls an operation. A job is done when it has been asked about often enough, and then tells what became
of each key.
"""

from collections.abc import Callable
from typing import Any

from ondatra_dagster.changes import Json
from ondatra_dagster.testing.calls import Answer, refusal
from ondatra_dagster.testing.demo_api.collection import Collection, Record


class Bulk:
    """Batches and jobs over one collection."""

    def __init__(self, collection: Collection) -> None:
        self.jobs: dict[str, dict[str, Any]] = {}  # by id: their results, and how often they were asked about
        self.polls = 1  # as often a job is asked about before it is done
        self._collection = collection

    def batch(self, _record_id: str, body: Record) -> Answer:
        """All of it, or nothing."""
        return self._with_operations(body, self._all_or_nothing)

    def submit(self, _record_id: str, body: Record) -> Answer:
        return self._with_operations(body, self._begin_job)

    def job(self, job_id: str, _body: Record) -> Answer:
        """How a job stands."""
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

    def _with_operations(self, body: Record, do: Callable[[list[Any]], Answer]) -> Answer:
        operations = body.get("operations")
        if not isinstance(operations, list) or not all(map(_is_operation, operations)):
            return refusal(400, "the body needs a list of operations, each with a key, and upsert or delete")
        return do(operations)

    def _all_or_nothing(self, operations: list[Any]) -> Answer:
        faults = {operation["key"]: fault for operation in operations if (fault := self._fault(operation))}
        if faults:
            return refusal(422, "; ".join(f"{key}: {fault}" for key, fault in faults.items()))
        for operation in operations:
            self._do(operation)
        return Answer(200, {"taken": len(operations)})

    def _begin_job(self, operations: list[Any]) -> Answer:
        results: list[Json] = []
        for operation in operations:
            fault = self._fault(operation)
            if not fault:
                self._do(operation)
            results.append([operation["key"], f"reject: {fault}" if fault else "ok"])
        job_id = f"J-{len(self.jobs) + 1}"
        self.jobs[job_id] = {"results": results, "asked": 0}
        return Answer(202, {"id": job_id, "status": "running"})

    def _fault(self, operation: Any) -> str | None:
        if "delete" in operation:
            return None
        record = operation["upsert"]
        return self._collection.nameless(record) or self._collection.fault_of(record)

    def _do(self, operation: Any) -> None:
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
