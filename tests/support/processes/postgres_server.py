"""A PostgreSQL server for one test: Debian's, on loopback, in a temporary folder, run by an ordinary user."""

import contextlib
import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from support.spark.spark_servers import LOOPBACK, find_free_port

DEBIAN_POSTGRES = Path("/usr/lib/postgresql")  # Debian puts only the clients on the PATH
USER = "dagster"
SETTINGS = {
    "listen_addresses": LOOPBACK,
    "unix_socket_directories": "",
    "fsync": "off",  # the data is deleted after the test
    "shared_buffers": "16MB",
}


@contextlib.contextmanager
def running_postgres_server() -> Iterator[str]:
    """Set up and start a server until the block ends; yield the address of its database."""
    owner = pwd.getpwnam("postgres") if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())  # PostgreSQL refuses root
    password, port = secrets.token_hex(16), find_free_port()
    with tempfile.TemporaryDirectory(prefix="postgres-") as scratch:
        folder = Path(scratch)
        (folder / "password").write_text(password)
        for path in (folder, folder / "password"):
            os.chown(path, owner.pw_uid, owner.pw_gid)
        control = [_find_program("pg_ctl"), "--pgdata", folder / "data", "--silent", "--wait"]
        initdb = f"--username={USER} --pwfile={folder}/password --auth=scram-sha-256 --no-sync --encoding=UTF8"
        _run_as(owner, folder, *control, "initdb", "--options", initdb)
        settings = " ".join(f"-c {name}='{value}'" for name, value in {**SETTINGS, "port": port}.items())
        _run_as(owner, folder, *control, "start", "--log", folder / "log", "--options", settings)
        try:
            yield f"postgresql://{USER}:{password}@{LOOPBACK}:{port}/postgres"
        finally:
            _run_as(owner, folder, *control, "stop", "--mode", "immediate")  # pg_ctl finds the process id in the folder


def _run_as(owner: pwd.struct_passwd, folder: Path, *command: str | Path) -> None:
    """Run a program as the owner; show its output when it fails."""
    user = {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []} if os.geteuid() == 0 else {}
    with (folder / "output").open("w+") as output:
        code = subprocess.run(command, cwd=folder, stdout=output, stderr=output, **user).returncode
        output.seek(0)
        assert 0 == code, (command, output.read(), (folder / "log").exists() and (folder / "log").read_text())


def _find_program(name: str) -> Path:
    """Return the newest version that Debian has installed, or the program on the PATH."""
    installed = sorted(DEBIAN_POSTGRES.glob(f"*/bin/{name}"), key=lambda path: int(path.parts[-3]))
    program = installed[-1] if installed else shutil.which(name)
    assert program, f"no {name} here: install the package postgresql"
    return Path(program)
