"""The workspace: one project with its syncs and stores, which commands, UI and Dagster share."""

from pathlib import Path

import pytest
from support.projects.shop_project import SHOP_PUSH, write_shop_files

from ondatra_dagster.app.workspace import load_workspace
from ondatra_dagster.errors import ProjectError, SelectionError

URL = "http://127.0.0.1:9"


def test_a_sync_is_found_by_its_id_or_its_models_name(tmp_path: Path) -> None:
    """A user who renamed one of them still knows the other."""
    model = "-- @kind: table\n-- @sink: crm_push\n-- @sync_id: Contacts\nSELECT * FROM raw.contacts\n"
    write_shop_files(tmp_path, url=URL, files={"models/sync/crm.sql": model})
    workspace = load_workspace(tmp_path)
    assert workspace.sync("contacts") is workspace.sync("sync.crm") is workspace.syncs["Contacts"]
    with pytest.raises(SelectionError):
        workspace.sync("nope")


def test_a_wrong_use_of_a_sink_is_a_problem_of_the_model(tmp_path: Path) -> None:
    """Each of the two files is valid without the other."""
    model = "-- @sink: crm_push('x')\nSELECT * FROM raw.contacts\n"
    write_shop_files(tmp_path, url=URL, files={"models/sync/crm.sql": model})
    with pytest.raises(ProjectError, match=r"models/sync/crm\.sql:1: @sink gives crm_push 1 argument"):
        load_workspace(tmp_path)


def test_an_unused_library_may_be_unfinished(tmp_path: Path) -> None:
    """Work in progress must not stop the syncs that run."""
    write_shop_files(tmp_path, url=URL, files={"lib/next.star": "def push(rows:\n"})
    assert ["sync.crm"] == list(load_workspace(tmp_path).syncs)


def test_a_broken_library_is_a_problem_once_it_is_used(tmp_path: Path) -> None:
    """It is reported at load, and not in the middle of the night."""
    write_shop_files(tmp_path, url=URL, files={"lib/crm_push.star": SHOP_PUSH.format(url=URL) + "\nx = (\n"})
    with pytest.raises(ProjectError, match=r"lib/crm_push\.star"):
        load_workspace(tmp_path)
