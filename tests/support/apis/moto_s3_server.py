"""An S3 server that Hadoop and Arrow accept: moto's, in a thread of this process."""

import contextlib
import logging
import urllib.request
from collections.abc import Iterator, Mapping

BUCKET = "lake"


@contextlib.contextmanager
def running_moto_s3() -> Iterator[Mapping[str, str]]:
    """Serve one bucket until the block ends; yield the environment variables for its access."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # it logs a line for each request
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        endpoint = f"http://{host}:{port}"
        urllib.request.urlopen(urllib.request.Request(f"{endpoint}/{BUCKET}", method="PUT")).close()
        yield {
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "a-key",
            "AWS_SECRET_ACCESS_KEY": "hush-hush",
        }
    finally:
        server.stop()
