"""The files of a run are private, whatever the umask is: they contain customers' rows and keys."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.processes.cli_terminal import CommandLine
from support.projects.shop_project import ShopProject

OTHERS = 0o077
OF_SPARK_AND_DAGSTER = ("warehouse", "storage", "history", "schedules")  # these are below a private folder


@pytest.fixture
def generous_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def open_to_others(folder: Path) -> dict[str, str]:
    """Return the paths in the folder that other users may read, write or enter, with their modes."""
    modes = {
        str(path.relative_to(folder)): stat.S_IMODE(path.stat().st_mode)
        for path in (folder, *folder.rglob("*"))
        if path == folder or path.relative_to(folder).parts[0] not in OF_SPARK_AND_DAGSTER
    }
    return {name: oct(mode) for name, mode in modes.items() if mode & OTHERS}


@pytest.mark.usefixtures("generous_umask")
def test_the_whole_state_folder_is_private(shop: ShopProject, ondatra: CommandLine) -> None:
    (shop.root / "lib" / "crm_push.star").write_text(
        'API = {"retry": 0}\ndef push(rows):\n    print("x")\n    fail("no")\n'
    )
    ondatra.run_project(shop)
    ondatra.run_project(shop, is_dry=True)
    for words in (["status"], ["pause", "sync.crm"], ["resume", "sync.crm"], ["maintain"], ["history"]):
        ondatra(*words, shop=shop)

    state = shop.root / ".ondatra"
    assert {"logs/ondatra.log", "queue/sync.crm.sqlite"} <= {str(p.relative_to(state)) for p in state.rglob("*")}
    assert {} == open_to_others(state)


@pytest.mark.usefixtures("generous_umask")
@pytest.mark.parametrize("mode", [0o755, None], ids=["the user's", "not there yet"])
def test_records_in_a_configured_folder_are_private(
    mode: int | None, shop: ShopProject, ondatra: CommandLine, tmp_path: Path
) -> None:
    """A folder that the user made keeps its permissions, but the files in it are private."""
    top = tmp_path / "records"
    if mode:
        top.mkdir(mode=mode)
    (shop.root / "pyproject.toml").write_text(f'[tool.ondatra]\ntracking = "{top}"\n')

    ondatra.run_project(shop)

    assert list(top.rglob("*.parquet"))
    assert ({".": oct(mode)} if mode else {}) == open_to_others(top)


def test_validate_warns_about_an_env_file_that_other_users_may_read(shop: ShopProject, ondatra: CommandLine) -> None:
    assert "warning" not in ondatra("validate").stderr

    (shop.root / ".env").chmod(0o644)

    result = ondatra("validate")
    assert (
        "warning: .env: other users of this machine may read the secrets in it (mode 0644); chmod 600 .env"
        in result.stderr.splitlines()
    )
    assert (0, 1) == (result.exit_code, ondatra("validate", "--strict").exit_code)
