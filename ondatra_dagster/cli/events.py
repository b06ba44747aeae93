"""`ondatra events`: takes events by HTTP, until it is told to end."""

import functools
import logging
from collections.abc import Callable
from pathlib import Path

import click

from ondatra_dagster import interruption
from ondatra_dagster.cli.here import find_root
from ondatra_dagster.cli.output import say
from ondatra_dagster.collector.server import LOOPBACK, CollectorServer, listen, token_of
from ondatra_dagster.log_lines import RecordFormatter
from ondatra_dagster.orchestration.measures import project_metrics
from ondatra_dagster.orchestration.project_reader import ProjectReader
from ondatra_dagster.project.load import load_project
from ondatra_dagster.project.settings.event_settings import PORT
from ondatra_dagster.project.settings.settings import read_settings
from ondatra_dagster.store.private_folder import keep_private

ENDING_SECONDS = 60.0  # what was taken is committed and answered first


@click.command("events")
@click.option(
    "--port", default=PORT, show_default=True, type=click.IntRange(0, 65535), help="0 for any free one."
)
@click.option(
    "--host",
    default=LOOPBACK,
    show_default=True,
    help="Who may reach it; others than this machine want a token.",
)
def command(port: int, host: str) -> int:
    """Take events for models of kind events, until Ctrl-C: POST them to /collect/SCHEMA/TABLE."""
    root = find_root()
    settings = read_settings(root)
    project = load_project(root, settings)
    keep_private(settings.state)
    handler = logging.StreamHandler()
    handler.setFormatter(RecordFormatter("%(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    with listen(host, port, token=token_of(settings)) as listener:
        server = CollectorServer(project, listener, more_metrics=_metrics_of(root))
        names = ", ".join(model.name for model in server.collector.ways.models.values())
        told = f"taking events for {names} at {server.url}/collect/SCHEMA/TABLE; Ctrl-C ends it"
        with (
            interruption.ending_in_order(within_seconds=ENDING_SECONDS),
            interruption.on_interruption(server.stop),
        ):
            server.run(lambda: say(told))
    interruption.forget()  # it is how this command ends well
    say("ended; what was taken and isn't in a table yet waits for a run")
    return 0


def _metrics_of(root: Path) -> Callable[[], str]:
    """How syncs and tables stand; a fault in a push function is no reason to take no events."""
    reader = functools.cache(lambda: ProjectReader(root))
    return lambda: project_metrics(reader().read()[0])
