"""Find a Java that Spark runs on. Starting it belongs to spark_jvm.

`python -m ondatra_dagster.warehouse.java` says which one is used, or what to get.
"""

import dataclasses
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from ondatra_dagster.errors import OndatraError, SetUpError
from ondatra_dagster.project.settings.settings import JAVA_HOME, read_settings

VERSIONS = (17, 21)
WANTED = "Java 17 or 21"
RELEASE = re.compile(r'JAVA_VERSION="(.+?)"')
BANNER = re.compile(r'version "(.+?)"')
USUAL_PLACES = ("/usr/lib/jvm/*", "/Library/Java/JavaVirtualMachines/*/Contents/Home")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    executable: Path
    release: str  # 17.0.15

    @property
    def version(self) -> int:
        """The number that it is called by: 8 for 1.8.0."""
        numbers = [int(number) for number in re.findall(r"\d+", self.release)] or [0]
        return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]

    @property
    def fits(self) -> bool:
        return self.version in VERSIONS


def find_java(java_home: Path | None, *, setting: str = JAVA_HOME) -> Java:
    """Return the Java in `java_home` when one is set, else the first that fits.

    Raises SetUpError, which names the setting that java_home comes from, or says what to get.
    """
    if java_home:
        return _at(java_home, setting)
    found = [java for executable in _candidates() if (java := _look_at(executable))]
    for java in found:
        if java.fits:
            return java
    if found:
        raise SetUpError(
            f"{found[0].executable} is Java {found[0].version}, and Spark needs {WANTED}: install one,"
            " or set JAVA_HOME to it"
        )
    raise SetUpError(f"Spark needs {WANTED}, and there is no Java here: install one, or set JAVA_HOME to it")


def _at(home: Path, setting: str) -> Java:
    executable = home / "bin" / "java"
    if not executable.is_file():
        raise SetUpError(f"{setting} is {home}, which has no bin/java: set it to the folder of a {WANTED}")
    java = _look_at(executable)
    if java is None:
        raise SetUpError(f"{setting} is {home}, whose java doesn't start: set it to the folder of a {WANTED}")
    if not java.fits:
        raise SetUpError(
            f"{setting} is {home}, which is Java {java.version}: set it to the folder of a {WANTED}"
        )
    return java


def _candidates() -> Iterator[Path]:
    """The java that a shell would start, then those where systems keep several."""
    on_path = shutil.which("java")
    if on_path:
        yield Path(on_path).resolve()
    for place in USUAL_PLACES:
        for home in sorted(Path("/").glob(place.lstrip("/"))):
            if (home / "bin" / "java").is_file():
                yield home / "bin" / "java"


def _look_at(executable: Path) -> Java | None:
    """What Java it is, by the file beside it; only without one is it started to say so itself."""
    try:
        text = (executable.parent.parent / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    written = RELEASE.search(text) or BANNER.search(_banner(executable))
    return Java(executable=executable, release=written.group(1)) if written else None


def _banner(executable: Path) -> str:
    try:
        return subprocess.run(  # noqa: S603 - a java, and no shell
            [executable, "-version"], capture_output=True, text=True, timeout=30, check=False
        ).stderr
    except (OSError, subprocess.TimeoutExpired):
        return ""


def main() -> None:
    try:
        settings = read_settings(Path.cwd())
        java = find_java(settings.java_home, setting=settings.java_home_setting)
    except OndatraError as error:
        sys.exit(str(error))
    sys.stdout.write(f"Java {java.release} at {java.executable}\n")


if __name__ == "__main__":
    main()
