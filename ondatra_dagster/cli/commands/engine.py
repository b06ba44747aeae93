"""The command `ondatra engine`: the Spark process that runs of this project share."""

import dataclasses
import time

import click

from ondatra_dagster.cli.current_project import open_workspace
from ondatra_dagster.cli.output import print_json, print_message, print_table
from ondatra_dagster.count_time_and_size_format import format_count, format_duration, format_size
from ondatra_dagster.errors import SettingsError
from ondatra_dagster.project.settings.read_settings_and_defaults import Settings
from ondatra_dagster.warehouse.spark.engine_client import find_engines, read_engine_status, stop_engine

HEADER = ("process", "up for", "heap", "open runs", "ended runs")
NO_ENGINE = 'no engine runs; with the setting engine = "on", the next run starts one'


@click.command("engine")
@click.argument("action", type=click.Choice(["status", "start", "stop"]), default="status")
@click.option("as_json", "--json", is_flag=True, help="Print one JSON object per engine.")
def command(action: str, as_json: bool) -> int:  # noqa: FBT001 - click calls it by name
    """Show, start or stop the engine: a Spark process that stays for the next runs."""
    settings = open_workspace().settings
    if action == "start":
        return _start(settings)
    return _stop(settings) if action == "stop" else _show(settings, as_json=as_json)


def _start(settings: Settings) -> int:
    from ondatra_dagster.warehouse.spark.session import Warehouse

    if settings.spark.remote:
        raise SettingsError("runs use the server of spark.remote and no engine; remove spark.remote to use one")
    with_engine = dataclasses.replace(settings, engine=dataclasses.replace(settings.engine, is_on=True))
    with Warehouse(with_engine, on_notice=print_message) as warehouse:
        _ = warehouse.session
    if not find_engines(settings.state):
        return 1  # the reason was printed
    idle_text = format_count(settings.engine.idle_minutes, "minute")
    print_message(f"the engine is running; it ends after {idle_text} without a run")
    return 0


def _stop(settings: Settings) -> int:
    engines = find_engines(settings.state)
    if not engines:
        print_message(NO_ENGINE)
    are_stopped = [stop_engine(settings.state, fingerprint, address) for fingerprint, address in engines.items()]
    if engines:
        print_message("the engine has ended" if all(are_stopped) else "the engine is still ending")
    return 0 if all(are_stopped) else 1


def _show(settings: Settings, *, as_json: bool) -> int:
    now = time.time()
    engines = [(address, read_engine_status(address)) for address in find_engines(settings.state).values()]
    if as_json:
        for address, status in engines:
            print_json({"process": address.pid, "up_seconds": round(now - address.started_at), **status})
    elif engines:
        print_table(
            HEADER,
            [
                (
                    address.pid,
                    format_duration(now - address.started_at),
                    format_size(status["heap_bytes"]) if status else "doesn't answer",
                    status.get("open_leases", ""),
                    status.get("ended_leases", ""),
                )
                for address, status in engines
            ],
        )
    else:
        print_message(NO_ENGINE)
    return 0
