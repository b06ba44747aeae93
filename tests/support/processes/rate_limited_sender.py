"""A sync that only calls its API, with eight threads and as fast as its limit allows, until it is killed."""

import sys
import threading
from pathlib import Path

from ondatra_dagster.delivery.http.api_client import ApiClient
from ondatra_dagster.delivery.http.rate_limit import RateLimit
from ondatra_dagster.delivery.http.request_builder import HttpCall
from ondatra_dagster.delivery.push.push_file_parser import parse_push_file

THREAD_COUNT = 8


def main(library: Path, rates: Path) -> None:
    source, problems = parse_push_file(library, f"lib/{library.name}")
    assert source, problems
    rate_limit = RateLimit.from_config(source.config, rates, lib=library.parent)
    assert rate_limit
    api = ApiClient(source.config, secrets={}.get, rate_limit=rate_limit)

    def send_calls() -> None:
        calls = api.begin_calls()
        while True:
            calls.send_call(HttpCall(method="GET", url=f"/{library.stem}"))

    for _ in range(THREAD_COUNT):
        threading.Thread(target=send_calls).start()


main(*map(Path, sys.argv[1:]))
