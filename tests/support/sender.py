"""A sync that only calls its API, with eight threads and as fast as it may, until it is killed."""

import sys
import threading
from pathlib import Path

from ondatra_dagster.delivery.http.http_api import HttpApi
from ondatra_dagster.delivery.http.http_request import Call
from ondatra_dagster.delivery.http.rate_limit import RateLimit
from ondatra_dagster.delivery.push.push_source import read_source

THREADS = 8


def main(library: Path, rates: Path) -> None:
    source, problems = read_source(library, f"lib/{library.name}")
    assert source, problems
    rate_limit = RateLimit.of(source.config, rates, lib=library.parent)
    assert rate_limit
    api = HttpApi(source.config, secrets={}.get, rate_limit=rate_limit)

    def send() -> None:
        calls = api.begin()
        while True:
            calls.call(Call(method="GET", url=f"/{library.stem}"))

    for _ in range(THREADS):
        threading.Thread(target=send).start()


main(*map(Path, sys.argv[1:]))
