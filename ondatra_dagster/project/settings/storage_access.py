"""The access to storage for Spark and for Python: S3's endpoint and keys, and the addresses of folders.

The endpoint and keys come from the usual S3 variables and from Spark's own settings, which take precedence.
"""

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

SPARK_S3_PREFIX = "spark.hadoop.fs.s3a."


def _secret_field() -> str | None:
    return dataclasses.field(default=None, repr=False)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class S3Access:
    """The endpoint and keys of S3.

    If a key is missing, the S3 libraries look for it in a profile or the machine's role.
    """

    endpoint: str | None = None  # such as http://127.0.0.1:9000; None: AWS
    region: str | None = None
    key: str | None = _secret_field()
    secret: str | None = _secret_field()
    token: str | None = _secret_field()

    def spark_conf(self) -> dict[str, str]:
        """Return the endpoint and keys as Spark settings. Never pass these secrets on a command line."""
        conf_values = {
            "endpoint": self.endpoint,
            "endpoint.region": self.region,
            "path.style.access": "true" if self.endpoint else None,
            "access.key": self.key,
            "secret.key": self.secret,
            "session.token": self.token,
        }
        return {SPARK_S3_PREFIX + name: value for name, value in conf_values.items() if value}


def read_s3_access(variables: Mapping[str, str], conf: Mapping[str, str]) -> S3Access:
    """Return the S3 access that the variables and Spark's settings describe together."""

    def read_value(name: str, *names: str) -> str | None:
        return conf.get(SPARK_S3_PREFIX + name) or next(
            (variables[variable] for variable in names if variables.get(variable)), None
        )

    return S3Access(
        endpoint=_with_scheme(read_value("endpoint", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"), conf),
        region=read_value("endpoint.region", "AWS_REGION", "AWS_DEFAULT_REGION"),
        key=read_value("access.key", "AWS_ACCESS_KEY_ID"),
        secret=read_value("secret.key", "AWS_SECRET_ACCESS_KEY"),
        token=read_value("session.token", "AWS_SESSION_TOKEN"),
    )


def _with_scheme(endpoint: str | None, conf: Mapping[str, str]) -> str | None:
    if endpoint is None or "://" in endpoint:
        return endpoint
    is_plain = conf.get(f"{SPARK_S3_PREFIX}connection.ssl.enabled", "true").casefold() == "false"
    return f"{'http' if is_plain else 'https'}://{endpoint}"


LOCAL_SCHEME = "file"
S3_SCHEMES = ("s3", "s3a", "s3n")


class StorageAddress(str):
    """The address of a folder: a path, or a URL such as s3a://bucket/folder, with the S3 access that it needs."""

    __slots__ = ("s3",)
    s3: S3Access

    def __new__(cls, text: str, s3: S3Access) -> "StorageAddress":
        address = super().__new__(cls, text)
        address.s3 = s3
        return address

    def __add__(self, suffix: str) -> "StorageAddress":
        return StorageAddress(str(self) + suffix, self.s3)

    def join_names(self, *names: str) -> "StorageAddress":
        """Return the address of a file or folder below this folder."""
        return StorageAddress("/".join([self.rstrip("/"), *names]), self.s3)


def scheme_of(address: str | os.PathLike[str]) -> str | None:
    """Return the scheme of an address, such as s3a; None for a path."""
    scheme, separator, _ = str(address).partition("://")
    return scheme.casefold() if separator else None


def local_path(address: str | os.PathLike[str]) -> Path | None:
    """Return the path that an address names on this machine; None if the address is elsewhere."""
    scheme = scheme_of(address)
    if scheme == LOCAL_SCHEME:
        return Path(unquote(urlsplit(str(address)).path))
    return Path(address) if scheme is None else None


def s3_access_of(address: str | os.PathLike[str]) -> S3Access:
    """Return the S3 access that an address carries. For a plain path or text, return an empty S3 access.

    With an empty access, the S3 libraries find the endpoint and keys by themselves.
    """
    return address.s3 if isinstance(address, StorageAddress) else S3Access()


def is_readable_without_spark(address: str) -> bool:
    """Return whether Python can read the address without Spark: on this machine, or on S3."""
    return local_path(address) is not None or scheme_of(address) in S3_SCHEMES
