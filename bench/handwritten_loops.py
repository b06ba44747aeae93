"""The loops over rows that users write themselves, with one request per batch. Nothing is tracked or retried."""

import http.client
import json
import time
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

import httpx
import requests

from bench.sample_rows import yield_batches

JSON = {"content-type": "application/json"}
Post = Callable[[str], int]


def _time_loop(post: Post, rows: int, size: int) -> float:
    batches = list(yield_batches(rows, size))
    start_time = time.perf_counter()
    for batch in batches:
        # with one row per call, send an object and not a list with one object
        status = post(json.dumps(batch if size > 1 else batch[0]))
        if status != http.HTTPStatus.OK:
            raise SystemExit(f"the bench's server answered {status}")
    return time.perf_counter() - start_time


def send_with_http_client(url: str, rows: int, size: int) -> float:
    """Return the seconds that http.client takes over one connection. This is the floor of the comparison."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc)

    def post_body(body: str) -> int:
        connection.request("POST", "/rows", body, JSON)
        with connection.getresponse() as response:
            response.read()
            return response.status

    return _time_loop(post_body, rows, size)


def send_with_httpx(url: str, rows: int, size: int) -> float:
    """Return the seconds that httpx takes with one client."""
    with httpx.Client(base_url=url) as client:
        return _time_loop(lambda body: client.post("/rows", content=body, headers=JSON).status_code, rows, size)


def send_with_requests(url: str, rows: int, size: int) -> float:
    """Return the seconds that requests takes with one session."""
    with requests.Session() as session:
        return _time_loop(lambda body: session.post(f"{url}/rows", data=body, headers=JSON).status_code, rows, size)


LOOPS: Mapping[str, Callable[[str, int, int], float]] = {
    "http.client": send_with_http_client,
    "httpx": send_with_httpx,
    "requests": send_with_requests,
}
