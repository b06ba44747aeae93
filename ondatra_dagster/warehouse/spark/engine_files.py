"""The files and messages between an engine and the runs that use it."""

import dataclasses
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from ondatra_dagster.count_time_and_size_format import ondatra_version
from ondatra_dagster.warehouse.spark.java_finder import Java
from ondatra_dagster.warehouse.spark.jvm_process import JvmLaunch

FOLDER = "engine"
LOOPBACK_HOST = "127.0.0.1"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EngineFiles:
    """The files of one engine in the state folder."""

    lock: Path
    address: Path
    log: Path


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EngineAddress:
    """The address of a running engine, with the secret that its clients need."""

    pid: int
    port: int
    secret: str
    started_at: float

    def dump(self) -> bytes:
        return orjson.dumps(self)

    @classmethod
    def load(cls, content: bytes) -> "EngineAddress":
        return cls(**orjson.loads(content))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class EngineLaunch:
    """The parameters of a new engine. They contain secrets, so they go through stdin."""

    state: Path
    jvm: JvmLaunch
    secret_conf: Mapping[str, str]
    idle_seconds: float

    @property
    def fingerprint(self) -> str:
        """Return a digest of everything that makes this engine unusable for a run with other settings."""
        jvm = {**dataclasses.asdict(self.jvm), "inherited_files": ()}
        content = orjson.dumps([ondatra_version(), jvm, self.secret_conf], default=str, option=orjson.OPT_SORT_KEYS)
        return hashlib.sha256(content).hexdigest()[:16]

    def dump(self) -> bytes:
        return orjson.dumps(dataclasses.asdict(self), default=str)

    @classmethod
    def load(cls, content: bytes) -> "EngineLaunch":
        values: dict[str, Any] = orjson.loads(content)
        jvm = values["jvm"]
        java = jvm["java"]
        java["executable"] = Path(java["executable"])
        launch = JvmLaunch(
            **{**jvm, "java": Java(**java), "log": Path(jvm["log"]), "jars": [Path(jar) for jar in jvm["jars"]]}
        )
        return cls(**{**values, "state": Path(values["state"]), "jvm": launch})


def engine_files(state: Path, fingerprint: str) -> EngineFiles:
    """Return the files of the engine with this fingerprint."""
    folder = state / FOLDER
    return EngineFiles(
        lock=folder / f"{fingerprint}.lock", address=folder / f"{fingerprint}.json", log=state / "logs" / "engine.log"
    )
