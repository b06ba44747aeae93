"""The access to storage: S3's endpoint and keys, and addresses of folders, the same for Spark and for Python.

The access is read from the usual S3 variables and from Spark's own settings, which take precedence.
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
    """The endpoint and keys of S3. The S3 libraries look for a missing one in a profile, or in the machine's role."""

    endpoint: str | None = None  # http://127.0.0.1:9000; None: AWS
    region: str | None = None
    key: str | None = _secret_field()
    secret: str | None = _secret_field()
    token: str | None = _secret_field()

    def spark_conf(self) -> dict[str, str]:
        """Return the same as Spark settings. They hold secrets, so don't pass them on a command line."""
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
    """Return the S3 access from the variables and Spark's settings together."""

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
    """A folder's path, or an address such as s3a://bucket/folder."""

    __slots__ = ("s3",)
    s3: S3Access

    def __new__(cls, text: str, s3: S3Access) -> "StorageAddress":
        address = super().__new__(cls, text)
        address.s3 = s3
        return address

    def __add__(self, suffix: str) -> "StorageAddress":
        return StorageAddress(str(self) + suffix, self.s3)

    def join_names(self, *names: str) -> "StorageAddress":
        """Return the address of these names below the folder."""
        return StorageAddress("/".join([self.rstrip("/"), *names]), self.s3)


def scheme_of(address: str | os.PathLike[str]) -> str | None:
    """Return the scheme of an address; None for a path."""
    scheme, separator, _ = str(address).partition("://")
    return scheme.casefold() if separator else None


def local_path(address: str | os.PathLike[str]) -> Path | None:
    """Return the folder or file of this machine that an address names; None if it is elsewhere."""
    scheme = scheme_of(address)
    if scheme == LOCAL_SCHEME:
        return Path(unquote(urlsplit(str(address)).path))
    return Path(address) if scheme is None else None


def s3_access_of(address: str | os.PathLike[str]) -> S3Access:
    """Return the access to an address. Without one, the S3 libraries find it by themselves."""
    return address.s3 if isinstance(address, StorageAddress) else S3Access()


def is_readable_without_spark(address: str) -> bool:
    """Return whether an address can be read without Spark."""
    return local_path(address) is not None or scheme_of(address) in S3_SCHEMES
