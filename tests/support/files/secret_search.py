"""A search for secrets in the files that a run leaves. Each secret has the word canary in its middle."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq

SECRET_MARKER = "canary"


def _encoded_markers() -> Iterator[str]:
    yield SECRET_MARKER
    yield SECRET_MARKER.encode().hex()
    yield "".join(f"%{ord(letter):02x}" for letter in SECRET_MARKER)
    yield "".join(f"&#{ord(letter)};" for letter in SECRET_MARKER)
    for offset in range(3):
        padded = bytes(offset) + SECRET_MARKER.encode()
        yield base64.b64encode(padded).decode()[(offset * 8 + 5) // 6 : len(padded) * 8 // 6]


ENCODED_MARKERS = tuple(_encoded_markers())


def find_secrets_in_text(text: str) -> list[str]:
    """Return the text around each secret; an empty list when there is none.

    Base64 is searched without its line breaks, which JSON escapes.
    """
    text = text + text.replace("\\n", "").replace("\n", "")
    return [
        text[max(text.index(form) - 60, 0) : text.index(form) + 60]
        for form in ENCODED_MARKERS
        if form in text or form in text.casefold()
    ]


def find_secrets_in_folder(folder: Path) -> dict[str, list[str]]:
    """Return the text around each secret in the folder's files and file names, Parquet contents included."""
    places_by_file = {str(file.relative_to(folder)): find_secrets_in_text(_text(file)) for file in folder.rglob("*")}
    return {name: places for name, places in places_by_file.items() if places}


def _text(file: Path) -> str:
    if not file.is_file():
        return file.name
    if file.suffix == ".parquet":
        return json.dumps(pq.read_table(file).to_pylist(), default=str) + str(pq.read_schema(file).metadata)
    return file.read_bytes().decode("latin-1")
