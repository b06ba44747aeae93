"""A process that fetches a set of jars: FOLDER REPOSITORY NAME=CONTENT…. It prints the fetch's messages."""

import sys
from pathlib import Path

from support.apis.maven_server import build_jar_set

from ondatra_dagster.warehouse.spark.jar_download import FetchListener, fetch_jar_set


class PrintingListener(FetchListener):
    def on_start(self, message: str) -> None:
        print(message, flush=True)


if __name__ == "__main__":
    folder, repository, *files = sys.argv[1:]
    contents = {name: text.encode() for name, _, text in (file.partition("=") for file in files)}
    fetch_jar_set(Path(folder), build_jar_set(contents), repository, PrintingListener())
    print("done", flush=True)
