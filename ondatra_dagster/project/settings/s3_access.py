"""How an S3 store is reached: one answer for Spark and for what looks at tables without it.

It comes from the variables that every tool for S3 knows, and from Spark's own settings, which win.
"""

import dataclasses
from collections.abc import Mapping

SPARK = "spark.hadoop.fs.s3a."


def _hidden() -> str | None:
    return dataclasses.field(default=None, repr=False)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class S3Access:
    """What is None is for the store's own tools to find: a profile, or the machine's role."""

    endpoint: str | None = None  # http://127.0.0.1:9000; AWS itself where nothing is said
    region: str | None = None
    key: str | None = _hidden()
    secret: str | None = _hidden()
    token: str | None = _hidden()

    def spark_conf(self) -> dict[str, str]:
        """The same in Spark's words. They hold secrets: they belong on no command line."""
        said = {
            "endpoint": self.endpoint,
            "endpoint.region": self.region,
            "path.style.access": "true" if self.endpoint else None,
            "access.key": self.key,
            "secret.key": self.secret,
            "session.token": self.token,
        }
        return {SPARK + name: value for name, value in said.items() if value}


def read_s3_access(variables: Mapping[str, str], conf: Mapping[str, str]) -> S3Access:
    """The access that the variables and Spark's settings describe together."""

    def said(name: str, *names: str) -> str | None:
        return conf.get(SPARK + name) or next(
            (variables[each] for each in names if variables.get(each)), None
        )

    return S3Access(
        endpoint=_with_scheme(said("endpoint", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"), conf),
        region=said("endpoint.region", "AWS_REGION", "AWS_DEFAULT_REGION"),
        key=said("access.key", "AWS_ACCESS_KEY_ID"),
        secret=said("secret.key", "AWS_SECRET_ACCESS_KEY"),
        token=said("session.token", "AWS_SESSION_TOKEN"),
    )


def _with_scheme(endpoint: str | None, conf: Mapping[str, str]) -> str | None:
    if endpoint is None or "://" in endpoint:
        return endpoint
    is_plain = conf.get(f"{SPARK}connection.ssl.enabled", "true").casefold() == "false"
    return f"{'http' if is_plain else 'https'}://{endpoint}"
