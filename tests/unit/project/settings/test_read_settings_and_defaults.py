"""The settings in pyproject.toml, .env and the environment."""

import importlib.metadata
import os
from pathlib import Path

import pytest

from ondatra_dagster.errors import SettingsError
from ondatra_dagster.project.settings import read_settings_and_defaults, setting_names_and_parsers
from ondatra_dagster.project.settings.read_settings_and_defaults import Secrets, SparkSettings, read_settings


def toml(root: Path, text: str) -> Path:
    (root / "pyproject.toml").write_text(text, encoding="utf-8")
    return root


def refusal(root: Path, environ: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        read_settings(root, environ or {})
    return str(caught.value).splitlines()


def test_a_project_without_settings_has_defaults(tmp_path):
    """pyproject.toml is optional."""
    settings = read_settings(tmp_path, {"XDG_CACHE_HOME": "/cache"})
    expected = read_settings_and_defaults.Settings(
        root=tmp_path,
        state=tmp_path / ".ondatra",
        warehouse=str(tmp_path / ".ondatra" / "warehouse"),
        tracking=str(tmp_path / ".ondatra" / "tracking"),
        tracking_retention_days=14,
        jars=Path("/cache/ondatra/jars") / read_settings_and_defaults.DELTA_VERSION,
        spark=SparkSettings(master="local[*]", remote=None, conf={}),
        sinks="on",
        organization="1",
        workspace="1",
        sources={},
        maven_mirror=None,
        java_home=None,
    )
    assert expected == settings


def test_the_jars_have_the_version_of_the_installed_delta_package():
    """The jar and the Python package have to be from the same release."""
    assert importlib.metadata.version("delta-spark") == read_settings_and_defaults.DELTA_VERSION


def test_the_settings_file_is_read(tmp_path):
    root = toml(
        tmp_path,
        """
        [tool.ondatra]
        sinks = "dry"
        warehouse = "s3a://lake/tables"
        tracking = "records"
        organization = 7
        spark.master = "local[2]"
        [tool.ondatra.sources]
        crm = "main.crm"
        old = "data/old tables"
        """,
    )
    settings = read_settings(root, {})
    assert settings.sinks == "dry"
    assert settings.warehouse == "s3a://lake/tables"
    assert settings.tracking == str(tmp_path / "records")
    assert settings.organization == "7"
    assert settings.spark.master == "local[2]"
    assert settings.sources == {"crm": "main.crm", "old": "data/old tables"}


@pytest.mark.parametrize(
    "text",
    [
        '[tool.ondatra.spark.conf]\n"spark.sql.ansi.enabled" = "true"',
        "[tool.ondatra]\nspark.conf.spark.sql.ansi.enabled = true",
        "[tool.ondatra.spark]\nconf = { spark.sql.ansi.enabled = true }",
    ],
)
def test_spark_settings_may_have_any_form_of_toml(tmp_path, text):
    assert read_settings(toml(tmp_path, text), {}).spark.conf == {"spark.sql.ansi.enabled": "true"}


@pytest.mark.parametrize(
    ("variable", "value", "name", "expected"),
    [
        ("ONDATRA_SINKS", "off", "sinks", "off"),
        ("ONDATRA_WAREHOUSE", "/lake", "warehouse", "/lake"),
        ("ONDATRA_TRACKING", "s3://b/t", "tracking", "s3://b/t"),
        ("ONDATRA_TRACKING_RETENTION_DAYS", "30", "tracking_retention_days", 30),
        ("ONDATRA_MAINTAIN_AT", "0  1 * * SUN", "maintain_at", "0 1 * * sun"),
        ("ONDATRA_MAINTAIN_AT", "off", "maintain_at", None),
        ("ONDATRA_ORGANIZATION", "acme", "organization", "acme"),
        ("ONDATRA_WORKSPACE", "w", "workspace", "w"),
        ("ONDATRA_UI_PORT", "9000", "ui_port", 9000),
        ("ONDATRA_DAGSTER_URL", "https://dagster.example.com/", "dagster_url", "https://dagster.example.com"),
        ("ONDATRA_JARS", "/jars", "jars", Path("/jars")),
        ("ONDATRA_MAVEN_MIRROR", "https://maven.example.com", "maven_mirror", "https://maven.example.com"),
        ("ONDATRA_JAVA_HOME", "/java", "java_home", Path("/java")),
    ],
)
def test_a_variable_wins_over_the_file(tmp_path, variable, value, name, expected):
    root = toml(tmp_path, '[tool.ondatra]\nsinks = "dry"\nwarehouse = "w"\norganization = "o"\njars = "j"\n')
    assert getattr(read_settings(root, {variable: value}), name) == expected


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ('tracking = "s3://b/t"', None),
        ('tracking = "records"', None),
        ('tracking = "s3://b/t"\ntracking_retention_days = 90', 90),
        ('tracking_retention_days = "forever"', None),
        ("", 14),
    ],
)
def test_a_configured_tracking_store_is_pruned_only_if_a_retention_is_set(tmp_path, text, days):
    """A user who configures a bucket has retention rules for it already."""
    assert days == read_settings(toml(tmp_path, f"[tool.ondatra]\n{text}"), {}).tracking_retention_days


@pytest.mark.parametrize("value", ["0", "-1", "true", '"two"', "1.5", '"14d"'])
def test_a_retention_that_is_not_a_number_of_days_is_refused(tmp_path, value):
    """A retention of 0 days would remove records that were just written."""
    (problem,) = refusal(toml(tmp_path, f"[tool.ondatra]\ntracking_retention_days = {value}"))
    assert "is not a number of days; write 1 or more, or 'forever'" in problem


@pytest.mark.parametrize("value", ['"at night"', "3", '"0 25 * * *"', '"on change"'])
def test_a_time_that_never_comes_is_refused(tmp_path, value):
    """Otherwise Dagster would raise the error for all definitions at once."""
    (problem,) = refusal(toml(tmp_path, f"[tool.ondatra]\nmaintain_at = {value}"))
    assert problem.startswith("pyproject.toml:2: ")


def test_alerts_have_their_own_table(tmp_path):
    """The address may contain a token through its variable, so it is shown nowhere."""
    root = toml(
        tmp_path,
        '[tool.ondatra.alerts]\nwebhook = "https://x/${A}/${B}"\ntoken_env = "C"\nrejects = "2.5%"\n'
        'deviation = false\nno_success_hours = "off"\n',
    )
    alerts = read_settings(root, {"ONDATRA_ALERTS_DEVIATION": "80%"}).alerts
    assert ("https://x/${A}/${B}", ("A", "B", "C")) == (alerts.webhook, alerts.required_variables)
    assert (0.025, 0.8, None) == (alerts.rejects, alerts.deviation, alerts.no_success_hours)
    assert "https://x" not in repr(alerts)
    defaults = read_settings(tmp_path / "nothing", {}).alerts
    assert (None, 0.1, None, 24) == (defaults.webhook, defaults.rejects, defaults.deviation, defaults.no_success_hours)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('webhook = "chat.example.com"', "the webhook isn't an address; write https://… or ${NAME}"),
        ('token_env = "a b"', "that isn't a variable's name; write the name of the one that holds the token"),
        ("rejects = 5", "5 is not a percentage; write '10%', or 'off'"),
        ('deviation = "much"', "'much' is not a percentage; write '10%', or 'off'"),
        ("no_success_hours = 0", "0 is not a number of hours; write 24, or 'off'"),
        ("no_success_hours = true", "True is not a number of hours; write 24, or 'off'"),
        ('webhok = "https://x"', "'alerts.webhok' is not a setting; did you mean 'alerts.webhook'?"),
    ],
)
def test_an_alerts_setting_that_cannot_be_used_is_refused(tmp_path, text, expected):
    (line,) = refusal(toml(tmp_path, f"[tool.ondatra.alerts]\n{text}\n"))
    assert line.startswith(f"pyproject.toml:2: {expected}")


@pytest.mark.parametrize(("text", "days"), [("", 7), ("table_retention_days = 30", 30)])
def test_tables_keep_old_versions_for_some_days(tmp_path, text, days):
    assert days == read_settings(toml(tmp_path, f"[tool.ondatra]\n{text}"), {}).table_retention_days
    forever = toml(tmp_path, '[tool.ondatra]\ntable_retention_days = "forever"')
    assert read_settings(forever, {}).table_retention_days is None


def test_every_setting_has_a_variable():
    """A user can configure everything also where there is no file to edit."""
    assert set(setting_names_and_parsers.SETTINGS_BY_VARIABLE.values()) == set(
        setting_names_and_parsers.SETTING_PARSERS
    )


def test_spark_settings_have_variables(tmp_path):
    root = toml(tmp_path, '[tool.ondatra.spark]\nmaster = "yarn"\n')
    settings = read_settings(root, {"ONDATRA_SPARK_MASTER": "local[1]", "ONDATRA_SPARK_REMOTE": "sc://host"})
    assert settings.spark == SparkSettings(master="local[1]", remote="sc://host")


def test_a_table_in_a_variable_is_json_and_is_merged_into_the_file(tmp_path):
    """The user changes one entry without repeating the others."""
    root = toml(tmp_path, '[tool.ondatra.sources]\ncrm = "a.b"\nerp = "c.d"\n')
    settings = read_settings(root, {"ONDATRA_SOURCES": '{"crm": "x.y"}'})
    assert settings.sources == {"crm": "x.y", "erp": "c.d"}


def test_an_empty_variable_counts_as_not_set(tmp_path):
    """CI sets a variable to an empty text when its secret is missing."""
    root = toml(tmp_path, '[tool.ondatra]\nsinks = "dry"\n')
    settings = read_settings(root, {"ONDATRA_SINKS": "", "KEY": ""})
    assert settings.sinks == "dry"
    assert settings.secret("KEY") is None


def test_dot_env_has_secrets_and_settings_and_the_environment_wins(tmp_path):
    (tmp_path / ".env").write_text('A=file\nB="two words"\nC=file\nONDATRA_SINKS=off\nD\n')
    settings = read_settings(tmp_path, {"C": "environment"})
    assert [settings.secret(name) for name in "ABCDE"] == ["file", "two words", "environment", None, None]
    assert settings.sinks == "off"


def test_values_in_dot_env_are_read_literally(tmp_path):
    """A password may contain a dollar sign."""
    (tmp_path / ".env").write_bytes(b"\xef\xbb\xbfKEY=p$HOME${HOME}\r\nOTHER=x\r\n")
    settings = read_settings(tmp_path, {"HOME": "/home/anna"})
    assert settings.secret("KEY") == "p$HOME${HOME}"
    assert settings.secret("OTHER") == "x"


def test_dot_env_is_never_copied_to_the_environment(tmp_path):
    """Every child process could read it there."""
    (tmp_path / ".env").write_text("ONDATRA_TEST_ONLY=secret\n")
    read_settings(tmp_path)
    assert "ONDATRA_TEST_ONLY" not in os.environ


def test_the_process_environment_is_read_by_default(tmp_path, monkeypatch):
    monkeypatch.setenv("ONDATRA_SINKS", "dry")
    assert read_settings(tmp_path).sinks == "dry"


def test_secrets_are_never_shown(tmp_path):
    """Settings are printed in logs and in tracebacks."""
    (tmp_path / ".env").write_text("KEY=hunter2\n")
    root = toml(
        tmp_path, '[tool.ondatra.spark]\nremote = "sc://h/;token=hunter2"\nconf."fs.s3a.secret.key" = "hunter2"\n'
    )
    settings = read_settings(root, {"TOKEN": "hunter2"})
    assert "hunter2" not in repr(settings) + str(settings) + repr(settings.secrets) + f"{settings.spark}"


def test_secrets_are_found_by_name():
    assert Secrets({"KEY": "v"}).get("KEY") == "v"


def test_an_unknown_setting_is_refused_with_the_nearest(tmp_path):
    root = toml(tmp_path, '[project]\nname = "x"\n\n[tool.ondatra]\nsink = "on"\n')
    (line,) = refusal(root)
    assert line.startswith("pyproject.toml:5: 'sink' is not a setting; did you mean 'sinks'? the settings are")


def test_an_unknown_setting_in_a_table_is_named_in_full(tmp_path):
    (line,) = refusal(toml(tmp_path, '[tool.ondatra.spark]\nmastr = "x"\n'))
    assert line.startswith("pyproject.toml:2: 'spark.mastr' is not a setting; did you mean 'spark.master'?")


def test_a_misspelled_variable_is_refused(tmp_path):
    """Otherwise the default would be used without a message."""
    (line,) = refusal(tmp_path, {"ONDATRA_SPARK_MASTR": "x"})
    assert "did you mean 'ONDATRA_SPARK_MASTER'?" in line


@pytest.mark.parametrize("variable", ["ONDATRA_OAUTH_TOKEN_CRM", "ONDATRA_CRM_KEY", "ONDATRA_RUN_BY_CI"])
def test_variables_of_other_programs_are_accepted(tmp_path, variable):
    assert read_settings(tmp_path, {variable: "x"}).secret(variable) == "x"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('sinks = "of"', "sinks can't be 'of'; did you mean 'off'? the choices are dry, off, on"),
        ("warehouse = 1", "1 is not a string; write it in quotes"),
        ('warehouse = " "', "' ' is not a string; write it in quotes"),
        ('organization = "../x"', "'../x' can't be a folder's name; use up to 100 of A-Z a-z 0-9 . _ -"),
        ('workspace = ".."', "'..' can't be a folder's name; use up to 100 of A-Z a-z 0-9 . _ -"),
        ("workspace = true", "True can't be a folder's name; use up to 100 of A-Z a-z 0-9 . _ -"),
        ('sources = "x"', "the value is not JSON"),
        ("sources = 3", "3 is not a table; write it as names with values"),
        ('sources."a b" = "x"', "a source can't be called 'a b'; use letters, digits and _"),
        ('sources = { crm = "x", CRM = "y" }', "two sources differ only in case; rename one of them"),
        ("spark.conf.x = [1]", "x can't be [1]; write a string, a number, true or false"),
    ],
)
def test_a_value_that_cannot_be_used_is_refused(tmp_path, text, expected):
    (line,) = refusal(toml(tmp_path, f"[tool.ondatra]\n{text}\n"))
    assert line.startswith(f"pyproject.toml:2: {expected}")


def test_all_invalid_settings_are_reported_together(tmp_path):
    root = toml(tmp_path, '[tool.ondatra]\nsinks = "x"\nfoo = 1\n')
    assert len(refusal(root, {"ONDATRA_SOURCES": "{"})) == 3


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("pyproject.toml", b"[tool.ondatra]\nx = '\xe9'", "pyproject.toml:2: the file is not UTF-8; save it as UTF-8"),
        ("pyproject.toml", b"[tool", "pyproject.toml:1: it isn't TOML: Expected ']'"),
        ("pyproject.toml", b"tool = 1", "pyproject.toml:1: tool.ondatra is not a table; write [tool.ondatra]"),
        ("pyproject.toml", b"tool.ondatra = 1", "pyproject.toml:1: tool.ondatra is not a table; write [tool.ondatra]"),
        (".env", b"KEY=\xe9", ".env:1: the file is not UTF-8; save it as UTF-8"),
    ],
)
def test_an_unreadable_file_is_reported_in_a_sentence(tmp_path, name, content, expected):
    (tmp_path / name).write_bytes(content)
    assert refusal(tmp_path)[0].startswith(expected)


def test_a_folder_in_place_of_a_file_is_reported_in_a_sentence(tmp_path):
    (tmp_path / "pyproject.toml").mkdir()
    expected = ["pyproject.toml: the file can't be read: Is a directory; make it readable"]
    assert expected == refusal(tmp_path)


def test_a_byte_order_mark_is_ignored(tmp_path):
    """Windows editors write one."""
    (tmp_path / "pyproject.toml").write_bytes(b'\xef\xbb\xbf[tool.ondatra]\r\nsinks = "dry"\r\n')
    assert read_settings(tmp_path, {}).sinks == "dry"


def test_paths_do_not_depend_on_the_current_folder(tmp_path, monkeypatch):
    (tmp_path / "p").mkdir()
    monkeypatch.chdir(tmp_path)
    settings = read_settings(Path("p"), {"ONDATRA_WAREHOUSE": "w", "ONDATRA_JARS": "j"})
    assert (settings.root, settings.warehouse, settings.jars) == (
        tmp_path / "p",
        str(tmp_path / "p" / "w"),
        tmp_path / "p" / "j",
    )


def test_java_is_found_by_the_variable_java_home(tmp_path):
    assert read_settings(tmp_path, {"JAVA_HOME": "/jdk"}).java_home == Path("/jdk")


@pytest.mark.parametrize(
    ("environ", "expected"), [({"LOCALAPPDATA": "/local"}, "/local/ondatra/jars"), ({}, "~/.cache/ondatra/jars")]
)
def test_jars_are_kept_in_the_users_cache(tmp_path, environ, expected):
    assert read_settings(tmp_path, environ).jars.parent == Path(expected).expanduser()
