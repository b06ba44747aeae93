"""The measurement of dlt's custom destination with the same rows. It runs in the Python of dlt's own environment.

It prints two rates: that of a whole run, and that of the load step alone. Before the load step the rows are already
extracted and normalized, just as ondatra's rows are already in the queue.
"""

import json
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import dlt
import requests
from dlt.common.json import json as dlt_json

from bench.sample_rows import build_row

JSON = {"content-type": "application/json"}


def main(url: str, rows: int, size: int) -> None:
    session = requests.Session()

    @dlt.destination(batch_size=size, name="api", naming_convention="direct")
    def api(items: Any, table: Any) -> None:
        # dlt's own JSON encoder is faster than the one that requests would use in this environment
        session.post(f"{url}/rows", data=dlt_json.dumpb(items), headers=JSON).raise_for_status()

    def source() -> Iterator[list[dict[str, Any]]]:
        for start in range(0, rows, 1000):
            yield [build_row(number) for number in range(start, min(start + 1000, rows))]

    with tempfile.TemporaryDirectory() as folder:
        pipeline = dlt.pipeline("bench", destination=api, pipelines_dir=folder)
        start_time = time.perf_counter()
        pipeline.extract(source(), table_name="rows")
        pipeline.normalize()
        load_start_time = time.perf_counter()
        pipeline.load(raise_on_failed_jobs=True)
        end_time = time.perf_counter()
    print(json.dumps({"rate": rows / (end_time - start_time), "load_rate": rows / (end_time - load_start_time)}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
