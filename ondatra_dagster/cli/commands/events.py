"""The command `ondatra events`, which receives events over HTTP until it is stopped."""

import functools
import logging

import click

from ondatra_dagster import interruption
from ondatra_dagster.app.project_metrics import project_metrics_text
from ondatra_dagster.app.workspace import ProjectCache
from ondatra_dagster.cli.current_project import find_root
from ondatra_dagster.cli.output import print_message
from ondatra_dagster.collector.event_server import LOOPBACK, CollectorServer, open_listener, read_token
from ondatra_dagster.log_line_escaping import EscapingFormatter
from ondatra_dagster.project.project_loader import load_project
from ondatra_dagster.project.settings.read_settings_and_defaults import DEFAULT_COLLECTOR_PORT, read_settings
from ondatra_dagster.storage.private_files import make_state_folder_private

SHUTDOWN_SECONDS = 60.0  # time to commit and answer the received events before the command ends


@click.command("events")
@click.option(
    "--port",
    default=DEFAULT_COLLECTOR_PORT,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="0 for any free one.",
)
@click.option(
    "--host", default=LOOPBACK, show_default=True, help="The address to listen on; other machines need a token."
)
def command(port: int, host: str) -> int:
    """Receive events for models of kind events, until Ctrl-C: POST them to /collect/SCHEMA/TABLE."""
    root = find_root()
    settings = read_settings(root)
    project = load_project(root, settings)
    make_state_folder_private(settings.state)
    handler = logging.StreamHandler()
    handler.setFormatter(EscapingFormatter("%(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    # push functions are loaded only at the first metrics request, so that an error in one can't stop the collector
    cache = functools.cache(lambda: ProjectCache(root))
    with open_listener(host, port, token=read_token(settings)) as listener:
        server = CollectorServer(
            project, listener, more_metrics=lambda: project_metrics_text(cache().load_current_project()[0])
        )
        names = ", ".join(model.name for model in server.collector.routes.models.values())
        message = f"accepting events for {names} at {server.url}/collect/SCHEMA/TABLE; Ctrl-C ends it"
        with interruption.graceful_shutdown(within_seconds=SHUTDOWN_SECONDS), interruption.on_interruption(server.stop):
            server.run(lambda: print_message(message))
    interruption.clear_signal()  # a signal is the normal end of this command, so it isn't an error
    print_message("ended; accepted events that are in no table yet wait for a run")
    return 0
