"""Delta's jars, and for tables on S3 Hadoop's: fetched once at set-up into the user's cache, checked, and
never looked up again.

`python -m ondatra_dagster.warehouse.jars` is that set-up. Which of them a session uses is spark_session's.
"""

import contextlib
import dataclasses
import hashlib
import re
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path

import orjson

from ondatra_dagster.errors import WarehouseError
from ondatra_dagster.project.settings.settings import AWS_VERSION, DELTA_VERSION, HADOOP_VERSION
from ondatra_dagster.warehouse.java import Java
from ondatra_dagster.warehouse.spark_jvm import Launch, pyspark_jars, start_jvm


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class JarSet:
    """Jars that are fetched together."""

    what: str
    coordinates: tuple[str, ...]
    needed: str  # stands in the name of a jar without which the set is none
    excluded: tuple[str, ...] = ()


DELTA = JarSet(
    what="Delta's jars",
    coordinates=(f"io.delta:delta-spark_4.2_2.13:{DELTA_VERSION}",),
    needed="delta-spark",
)
S3A = JarSet(
    what="the jars for S3",
    coordinates=(
        f"org.apache.hadoop:hadoop-aws:{HADOOP_VERSION}",
        *(f"software.amazon.awssdk:{name}:{AWS_VERSION}" for name in ("s3", "s3-transfer-manager", "sts")),
    ),
    needed="hadoop-aws",
    excluded=("software.amazon.awssdk:bundle",),  # all of AWS, 686 MB
)
S3A_FOLDER = "s3a"  # within that of Delta's
MANIFEST = "manifest.json"
COMMAND = "python -m ondatra_dagster.warehouse.jars"
VERSION_IN_NAME = re.compile(r"-\d[\w.+-]*$")


def delta_jars(folder: Path) -> tuple[Path, ...]:
    """Delta's jars in `folder`, as they were fetched; WarehouseError when one is missing or cut short."""
    return _fetched(folder, DELTA)


def s3a_jars(folder: Path) -> tuple[Path, ...]:
    """The jars for S3, beside those of Delta in `folder`; raises WarehouseError like delta_jars."""
    return _fetched(folder / S3A_FOLDER, S3A)


def fetch_jars(folder: Path, *, java: Java, mirror: str | None = None) -> tuple[Path, ...]:
    """Delta's jars in `folder`, fetched by Spark's own resolver when they aren't there yet."""
    return _fetch(folder, DELTA, java, mirror)


def fetch_s3a_jars(folder: Path, *, java: Java, mirror: str | None = None) -> tuple[Path, ...]:
    """The same for S3; Delta's are there already."""
    return _fetch(folder / S3A_FOLDER, S3A, java, mirror)


def _fetched(folder: Path, wanted: JarSet) -> tuple[Path, ...]:
    try:
        sizes: Mapping[str, int] = orjson.loads((folder / MANIFEST).read_bytes())["sizes"]
        whole = all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, orjson.JSONDecodeError, KeyError):
        whole = False
    if not whole:
        what = wanted.what[0].upper() + wanted.what[1:]
        raise WarehouseError(f"{what} are not in {folder}; run `{COMMAND}` once to fetch them")
    return tuple(folder / name for name in sorted(sizes))


def _fetch(folder: Path, wanted: JarSet, java: Java, mirror: str | None) -> tuple[Path, ...]:
    with contextlib.suppress(WarehouseError):
        return _fetched(folder, wanted)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".fetching-") as work:
        fetched = Path(work) / "jars"
        fetched.mkdir()
        sizes = _keep(_resolve(Path(work), wanted, java, mirror), fetched, wanted)
        manifest = {"delta": DELTA_VERSION, "sizes": sizes}
        (fetched / MANIFEST).write_bytes(orjson.dumps(manifest, option=orjson.OPT_INDENT_2))
        shutil.rmtree(folder, ignore_errors=True)
        fetched.rename(folder)  # whole or not at all
    return _fetched(folder, wanted)


def fingerprint(jars: Iterable[Path]) -> str:
    """What tells one set of jars from another: their places and sizes."""
    listed = "\n".join(f"{jar} {jar.stat().st_size}" for jar in jars)
    return hashlib.sha256(listed.encode()).hexdigest()[:12]


def _resolve(work: Path, wanted: JarSet, java: Java, mirror: str | None) -> list[Path]:
    """All that the set needs, in a folder of their own: a JVM is started for this alone."""
    log = work / "resolver.log"
    conf = {"spark.jars.packages": ",".join(wanted.coordinates), "spark.jars.ivy": str(work / "ivy")}
    if wanted.excluded:
        conf["spark.jars.excludes"] = ",".join(wanted.excluded)
    variables = {"DEFAULT_ARTIFACT_REPOSITORY": mirror} if mirror else {}
    try:
        jvm = start_jvm(Launch(java=java, conf=conf, log=log, variables=variables))
    except WarehouseError as error:
        raise WarehouseError(f"{wanted.what} could not be fetched: {_reason(log, wanted)}") from error
    jvm.end(wait_seconds=30)
    return sorted((work / "ivy" / "jars").glob("*.jar"))


def _reason(log: Path, wanted: JarSet) -> str:
    """One sentence out of the several hundred lines that the resolver prints."""
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    if "unresolved dependency" in text or "download failed" in text.lower():
        return (
            f"no repository that was asked has {wanted.coordinates[0]}, or none answered;"
            " set maven_mirror in [tool.ondatra] to one that can be reached"
        )
    telling = [line.strip() for line in text.splitlines() if "xception" in line]
    return telling[0] if telling else "the resolver did not say why"


def _keep(jars: Iterable[Path], folder: Path, wanted: JarSet) -> dict[str, int]:
    """Copy the jars that pyspark doesn't bring itself, in whichever version; returns their sizes."""
    shipped = {VERSION_IN_NAME.sub("", jar.stem) for jar in pyspark_jars()}
    sizes: dict[str, int] = {}
    for jar in jars:
        artifact = VERSION_IN_NAME.sub("", jar.stem.partition("_")[2])  # group_artifact-version
        if artifact not in shipped:
            _check(jar)
            shutil.copyfile(jar, folder / jar.name)
            sizes[jar.name] = jar.stat().st_size
    if not any(wanted.needed in name for name in sizes):
        raise WarehouseError(
            f"{wanted.what} could not be fetched: the resolver ended without them; try again"
        )
    return sizes


def _check(jar: Path) -> None:
    try:
        with zipfile.ZipFile(jar) as archive:
            broken = archive.testzip()
    except zipfile.BadZipFile as error:
        raise WarehouseError(f"{jar.name} arrived broken; try again") from error
    if broken:
        raise WarehouseError(f"{jar.name} arrived broken at {broken}; try again")


if __name__ == "__main__":
    from ondatra_dagster.warehouse.set_up import main  # here: set-up uses this module

    sys.exit(main())
