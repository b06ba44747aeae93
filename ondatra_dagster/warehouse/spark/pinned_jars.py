"""The jars that Spark needs besides pyspark's own, pinned by version, size and SHA-256.

pinned_jars.txt has them; `.ci/pin_jars.py` writes it.
jars.py fetches them into a folder.
"""

import dataclasses
import hashlib
from pathlib import Path

PINS_FILE = Path(__file__).with_name("pinned_jars.txt")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PinnedJar:
    """A jar by its Maven coordinate, and what its content has to be."""

    group: str
    artifact: str
    version: str
    size: int
    sha256: str

    @property
    def name(self) -> str:
        """The file's name, which is the one that Maven repositories give it."""
        return f"{self.artifact}-{self.version}.jar"

    @property
    def path(self) -> str:
        """The file's path in a Maven repository."""
        return "/".join((self.group.replace(".", "/"), self.artifact, self.version, self.name))

    def is_in(self, folder: Path) -> bool:
        """Return whether the folder has the file, by its size: a start of Spark has no time for more."""
        try:
            return (folder / self.name).stat().st_size == self.size
        except OSError:
            return False

    def is_intact_in(self, folder: Path) -> bool:
        """Return whether the folder has the file with the pinned content."""
        try:
            with (folder / self.name).open("rb") as stream:
                return hashlib.file_digest(stream, "sha256").hexdigest() == self.sha256
        except OSError:
            return False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class JarSet:
    """Jars that are fetched together."""

    title: str
    jars: tuple[PinnedJar, ...]

    @property
    def size(self) -> int:
        return sum(jar.size for jar in self.jars)


def _read_jar_set(set_name: str, title: str) -> JarSet:
    lines = [line.split() for line in PINS_FILE.read_text(encoding="utf-8").splitlines() if line[0] != "#"]
    jars = []
    for name, coordinate, size, sha256 in lines:
        if name == set_name:
            group, artifact, version = coordinate.split(":")
            jars.append(PinnedJar(group=group, artifact=artifact, version=version, size=int(size), sha256=sha256))
    return JarSet(title=title, jars=tuple(jars))


DELTA_JARS = _read_jar_set("delta", "Delta's jars")
S3A_JARS = _read_jar_set("s3a", "the jars for S3")
