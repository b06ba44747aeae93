"""The search for a Java that Spark can run on. jvm_process.py starts this Java.

`python -m ondatra_dagster.warehouse.spark.java_finder` prints which Java is used, or what to install.
"""

import contextlib
import dataclasses
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from ondatra_dagster.errors import OndatraError, SparkSetupError
from ondatra_dagster.project.settings.read_settings_and_defaults import JAVA_HOME_VARIABLE, read_settings

SUPPORTED_VERSIONS = (17, 21)
REQUIRED_JAVA = "Java 17 or 21"
RELEASE_PATTERN = re.compile(r'JAVA_VERSION="(.+?)"')
BANNER_PATTERN = re.compile(r'version "(.+?)"')
USUAL_FOLDERS = ("/usr/lib/jvm/*", "/Library/Java/JavaVirtualMachines/*/Contents/Home")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    executable: Path
    release: str  # such as 17.0.15

    @property
    def version(self) -> int:
        """Return the major version: 17 for 17.0.15, 8 for 1.8.0."""
        numbers = [int(number) for number in re.findall(r"\d+", self.release)] or [0]
        return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]

    @property
    def is_supported(self) -> bool:
        return self.version in SUPPORTED_VERSIONS


def find_java(java_home: Path | None, *, setting_name: str = JAVA_HOME_VARIABLE) -> Java:
    """Return the Java in `java_home` if this is set, otherwise the first supported Java on this machine.

    Raises SparkSetupError. It names the setting that java_home comes from, or says what to install.
    """
    if java_home:
        return _java_at(java_home, setting_name)
    candidates = [java for executable in _candidates() if (java := _identify_java(executable))]
    for java in candidates:
        if java.is_supported:
            return java
    if candidates:
        raise SparkSetupError(
            f"{candidates[0].executable} is Java {candidates[0].version}, and Spark needs {REQUIRED_JAVA}: install one,"
            " or set JAVA_HOME to it"
        )
    raise SparkSetupError(
        f"Spark needs {REQUIRED_JAVA}, and there is no Java here: install one, or set JAVA_HOME to it"
    )


def _java_at(home: Path, setting_name: str) -> Java:
    executable = home / "bin" / "java"
    java = _identify_java(executable) if executable.is_file() else None
    if java and java.is_supported:
        return java
    if java:
        problem = f"which is Java {java.version}"
    else:
        problem = "whose java doesn't start" if executable.is_file() else "which has no bin/java"
    raise SparkSetupError(f"{setting_name} is {home}, {problem}: set it to the folder of a {REQUIRED_JAVA}")


def _candidates() -> Iterator[Path]:
    """Yield the java on the PATH, then the javas in the usual folders of operating systems."""
    path_java = shutil.which("java")
    if path_java:
        yield Path(path_java).resolve()
    for pattern in USUAL_FOLDERS:
        for home in sorted(Path("/").glob(pattern.lstrip("/"))):
            if (home / "bin" / "java").is_file():
                yield home / "bin" / "java"


def _identify_java(executable: Path) -> Java | None:
    """Return the Java with the version in its `release` file.

    Without this file, start the Java and read its version.
    """
    text = ""
    with contextlib.suppress(OSError):
        text = (executable.parent.parent / "release").read_text(encoding="utf-8", errors="replace")
    match = RELEASE_PATTERN.search(text) or BANNER_PATTERN.search(_version_banner(executable))
    return Java(executable=executable, release=match.group(1)) if match else None


def _version_banner(executable: Path) -> str:
    try:
        return subprocess.run(  # noqa: S603 - a java, and no shell
            [executable, "-version"], capture_output=True, text=True, timeout=30, check=False
        ).stderr
    except (OSError, subprocess.TimeoutExpired):
        return ""


def main() -> None:
    try:
        settings = read_settings(Path.cwd())
        java = find_java(settings.java_home, setting_name=settings.java_home_setting)
    except OndatraError as error:
        sys.exit(str(error))
    sys.stdout.write(f"Java {java.release} at {java.executable}\n")


if __name__ == "__main__":
    main()
