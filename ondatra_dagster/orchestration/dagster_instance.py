"""The project's Dagster instance for runs that `ondatra` starts: Dagster's page shows the same history."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
from dagster._core.instance.ref import InstanceRef

from ondatra_dagster.errors import OndatraError
from ondatra_dagster.project.settings.settings import Settings
from ondatra_dagster.storage.file_errors import disk_error, explain_file_errors
from ondatra_dagster.storage.private_files import make_state_folder_private

# what steps print goes where the user sees it, not through files and processes of Dagster's
NO_COMPUTE_LOGS = {"module": "dagster._core.storage.noop_compute_log_manager", "class": "NoOpComputeLogManager"}
IF_DAMAGED = "move it away: Dagster's own history begins anew, and tables and queues stay"


@contextlib.contextmanager
def open_instance(settings: Settings) -> Iterator[dg.DagsterInstance]:
    """DAGSTER_HOME's instance where that is set, else the one of the project's dagster.yaml."""
    home = settings.secret("DAGSTER_HOME")
    folder = Path(home) if home else settings.root
    is_configured = (folder / "dagster.yaml").exists()
    base = storage_folder(settings)
    make_state_folder_private(settings.state)
    with explain_file_errors(base):
        base.mkdir(mode=0o700, parents=True, exist_ok=True)
    overrides: dict[str, object] = {"compute_logs": NO_COMPUTE_LOGS}
    if not is_configured:
        overrides["telemetry"] = {"enabled": False}  # who wants it says so in a dagster.yaml
    # paths in the project's dagster.yaml are relative to it, as for `dg dev`, which is started there
    with _explain_storage_errors(base), contextlib.chdir(folder):
        ref = InstanceRef.from_dir(str(base), config_dir=str(folder), overrides=overrides)
        with dg.DagsterInstance.from_ref(ref) as instance:
            yield instance


def storage_folder(settings: Settings) -> Path:
    """Return the folder that Dagster's storage is in, where dagster.yaml doesn't say otherwise."""
    home = settings.secret("DAGSTER_HOME")
    if home:
        return Path(home)
    return settings.root if (settings.root / "dagster.yaml").exists() else settings.state / "dagster"


@contextlib.contextmanager
def _explain_storage_errors(base: Path) -> Iterator[None]:
    """Raise StateError where the disk of Dagster's storage is at fault: its own error has no remedy."""
    try:
        yield
    except OndatraError:
        raise
    except Exception as error:
        if fault := disk_error(error, base, IF_DAMAGED):
            raise fault from error
        raise
