"""A process that fetches a set of jars: FOLDER REPOSITORY NAME=CONTENT…. It prints what it is told."""

import sys
from pathlib import Path

from support.maven_repository import a_set

from ondatra_dagster.warehouse.jars import FetchListener, fetch_set


class Printed(FetchListener):
    def begins(self, message: str) -> None:
        print(message, flush=True)


if __name__ == "__main__":
    folder, repository, *files = sys.argv[1:]
    contents = {name: text.encode() for name, _, text in (file.partition("=") for file in files)}
    fetch_set(Path(folder), a_set(contents), repository, Printed())
    print("done", flush=True)
