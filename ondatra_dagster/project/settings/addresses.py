"""Where a table is, as one text that Spark takes, with what it needs to be opened without Spark."""

import os
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ondatra_dagster.project.settings.s3_access import S3Access

LOCAL_SCHEME = "file"
S3_SCHEMES = ("s3", "s3a", "s3n")


class Address(str):
    """A folder's path, or an address such as s3a://bucket/folder."""

    __slots__ = ("s3",)
    s3: S3Access

    def __new__(cls, text: str, s3: S3Access) -> "Address":
        made = super().__new__(cls, text)
        made.s3 = s3
        return made

    def __add__(self, more: str) -> "Address":
        return Address(str(self) + more, self.s3)

    def below(self, *names: str) -> "Address":
        """What is in the folder under these names."""
        return Address("/".join([self.rstrip("/"), *names]), self.s3)


def scheme_of(address: str | os.PathLike[str]) -> str | None:
    """The scheme of an address; None for a path."""
    before, mark, _ = str(address).partition("://")
    return before.casefold() if mark else None


def local_path(address: str | os.PathLike[str]) -> Path | None:
    """The folder or file of this machine that an address means; None when it is elsewhere."""
    scheme = scheme_of(address)
    if scheme == LOCAL_SCHEME:
        return Path(unquote(urlsplit(str(address)).path))
    return Path(address) if scheme is None else None


def s3_access(address: str | os.PathLike[str]) -> S3Access:
    """How an address is reached; one that doesn't know leaves it to the store's own tools."""
    return address.s3 if isinstance(address, Address) else S3Access()
