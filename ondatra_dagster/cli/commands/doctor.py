"""The command `ondatra doctor`, which checks whether this machine and this project have what a run needs."""

import contextlib
import sys

import click

from ondatra_dagster.cli.current_project import find_root
from ondatra_dagster.cli.output import indent_lines, print_json, replace_control_characters
from ondatra_dagster.cli.status_line import StatusLine
from ondatra_dagster.doctor.check_context_and_result import CheckLevel, CheckResult, read_check_context
from ondatra_dagster.doctor.check_runner import CHECKS, run_checks
from ondatra_dagster.errors import SettingsError

LEVEL_WIDTH = max(len(level) for level in CheckLevel)
NAME_WIDTH = max(len(check.name) for check in CHECKS)


@click.command("doctor")
@click.option("--no-spark", "leaves_spark", is_flag=True, help="Don't start Spark, and download nothing.")
@click.option("as_json", "--json", is_flag=True, help="Print one JSON object per result.")
def command(leaves_spark: bool, as_json: bool) -> int:  # noqa: FBT001 - click calls it by name
    """Check this machine and the project for all that a run needs.

    Each line begins with ok, warning or failed. The check of Spark starts it, which takes some 10 seconds, and
    downloads missing jars. The exit code is 1 when a check failed.
    """
    root = None
    with contextlib.suppress(SettingsError):
        root = find_root()
    check_context = read_check_context(root, starts_spark=not leaves_spark)
    status_line = StatusLine(sys.stderr)
    has_failed = False
    for name, result in run_checks(
        check_context, on_begin=lambda check_name: status_line.show(lambda: f"… {check_name}")
    ):
        has_failed = has_failed or result.level is CheckLevel.FAILED
        with status_line:
            _print_result(name, result, as_json=as_json)
    status_line.clear()
    return 1 if has_failed else 0


def _print_result(check: str, result: CheckResult, *, as_json: bool) -> None:
    if as_json:
        print_json({"check": check, "level": result.level, "what": result.description, "remedy": result.remedy})
    else:
        click.echo(
            indent_lines(replace_control_characters(f"{result.level:<{LEVEL_WIDTH}}  {check:<{NAME_WIDTH}}  {result}"))
        )
