"""A loaded project, and the questions that it answers."""

import pytest

from ondatra_dagster.errors import SelectionError
from ondatra_dagster.project.model_selection import select_models

CHAIN = {
    "lib/crm.star": "",
    "models/raw/a.sql": "-- @tag: daily\nselect 1 as id",
    "models/raw/b.sql": "-- @owner: team:shop\n-- @tag: tier=gold\nselect 2 as id",
    "models/mart/c.sql": "select raw.a.id from raw.a join raw.b on true",
    "models/Sync/D.sql": (
        "-- @kind: merge\n-- @unique_key: id\n-- @sink: crm\n-- @sync_id: the-crm\nselect * from mart.c"
    ),
    "models/sync/e.sql": "-- @kind: tracked\n-- @unique_key: id\nselect * from mart.c, raw.b",
}


@pytest.fixture
def project(load_from_files):
    return load_from_files(CHAIN)


def test_models_come_after_their_inputs(project):
    assert ["raw.a", "raw.b", "mart.c", "sync.d", "sync.e"] == list(project.models)


@pytest.mark.parametrize("name", ["sync.d", "Sync.D", "SYNC/d"])
def test_a_model_is_found_with_any_spelling(project, name):
    assert "Sync.D" == project.model(name).name


def test_an_unknown_model_is_refused_with_the_nearest_one(project):
    with pytest.raises(SelectionError) as caught:
        project.model("sync.f")
    expected = "there is no model 'sync.f'; did you mean 'sync.e'? the models are Sync.D, mart.c, raw.a, "
    assert str(caught.value).startswith(expected)


@pytest.mark.parametrize("name", ["the-crm", "THE-CRM", "sync.d"])
def test_a_sync_is_found_by_its_id_and_by_its_model(project, name):
    """Users may remember either of them."""
    assert "Sync.D" == project.sync(name).name


def test_a_model_without_a_sink_is_not_a_sync(project):
    with pytest.raises(SelectionError) as caught:
        project.sync("sync.e")
    assert "there is no sync 'sync.e'; the syncs are the-crm" == str(caught.value)


def test_the_upstream_models_of_a_model_are_listed(project):
    assert {"mart.c", "raw.a", "raw.b"} == project.upstream("sync.d")
    assert set() == project.upstream("raw.a")


def test_models_with_sinks_are_listed(project):
    assert ["Sync.D"] == [model.name for model in project.models_with_sinks()]


@pytest.mark.parametrize(
    ("selections", "expected"),
    [
        ([], []),
        (["*"], ["mart.c", "raw.a", "raw.b", "sync.d", "sync.e"]),
        (["sync.d"], ["sync.d"]),
        (["Sync/D"], ["sync.d"]),
        (["sync.*"], ["sync.d", "sync.e"]),
        (["*.c"], ["mart.c"]),
        (["raw.?"], ["raw.a", "raw.b"]),
        (["+mart.c"], ["mart.c", "raw.a", "raw.b"]),
        (["mart.c+"], ["mart.c", "sync.d", "sync.e"]),
        (["raw.a+"], ["mart.c", "raw.a", "sync.d", "sync.e"]),
        (["raw.a+1"], ["mart.c", "raw.a"]),
        (["1+sync.d"], ["mart.c", "sync.d"]),
        (["+mart.c+"], ["mart.c", "raw.a", "raw.b", "sync.d", "sync.e"]),
        (["raw.a", "sync.e"], ["raw.a", "sync.e"]),
        (["key:mart/c"], ["mart.c"]),
        (['key:"mart/c"+1'], ["mart.c", "sync.d", "sync.e"]),
        (["group:sync"], ["sync.d", "sync.e"]),
        (["kind:tracked"], ["sync.e"]),
        (["tag:daily"], ["raw.a"]),
        (["+kind:merge"], ["mart.c", "raw.a", "raw.b", "sync.d"]),
        (["owner:team:shop+1"], ["mart.c", "raw.b", "sync.e"]),
        (["sync.* and kind:merge"], ["sync.d"]),
        (["sync.* and not kind:merge"], ["sync.e"]),
        (["raw.a or raw.b and tag:daily"], ["raw.a"]),
        (["(raw.a or raw.b) and owner:*"], ["raw.b"]),
        (["not +mart.c"], ["sync.d", "sync.e"]),
        (["NOT(raw.* OR mart.c)"], ["sync.d", "sync.e"]),
        (["raw.a and raw.b"], []),
        (["roots(*)"], ["raw.a", "raw.b"]),
        (["Sinks( +mart.c )"], ["mart.c"]),
        (["sinks(*) and not roots(sync.d)"], ["sync.e"]),
        (["roots((mart.* or sync.*))"], ["mart.c"]),
        (["kind:delta and raw.*"], ["raw.a", "raw.b"]),
        (['tag:"tier"="gold"'], ["raw.b"]),
    ],
)
def test_models_are_selected(project, selections, expected):
    assert expected == sorted(select_models(project, selections))


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        ("mart.d", "no model is meant by 'mart.d'; did you mean 'mart.c'? the models are "),
        ("x*", "no model is meant by 'x*'; the models are "),
        ("colour:red", "'colour:red' selects by an unknown attribute; the attributes are group, key, kind, owner, tag"),
        ("", "'' is not a selection; write mart.orders, +mart.orders or mart.*"),
        ("raw.a and", "'raw.a and' is not a selection; write "),
        ("(raw.a", "'(raw.a' is not a selection; write "),
        ("raw.a)", "'raw.a)' is not a selection; write "),
        ("+", "'+' is not a selection; write "),
        ("raw.a raw.b", "'raw.a raw.b' is not a selection; write mart.orders, +mart.orders or mart.*"),
    ],
)
def test_a_selection_without_models_is_refused(project, selection, expected):
    """A run of no models would look like a successful run."""
    with pytest.raises(SelectionError) as caught:
        select_models(project, [selection])
    assert str(caught.value).startswith(expected)


def test_an_empty_project_has_no_models_to_select(load_from_files):
    assert set() == select_models(load_from_files({}), ["*"])
