"""The command `ondatra ui`, which serves the records page on this machine."""

import errno
import threading

import click

from ondatra_dagster import interruption
from ondatra_dagster.app.workspace import ProjectCache
from ondatra_dagster.cli.current_project import find_root
from ondatra_dagster.cli.output import print_message
from ondatra_dagster.ui.web_app_and_server import PageServer, open_listener


@click.command("ui")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    help="The port on 127.0.0.1, 0 for any free one. The default is the setting ui_port.",
)
def command(port: int | None) -> int:
    """Show syncs, their runs and records as pages in the browser, until Ctrl-C. This changes nothing."""
    project = ProjectCache(find_root())
    requested_port = project.load_current_project()[0].settings.ui_port if port is None else port
    try:
        listener = open_listener(requested_port)
    except OSError as error:
        raise click.ClickException(_port_error_message(error, requested_port)) from error
    server = PageServer(project, listener)
    end_event = threading.Event()
    with interruption.graceful_shutdown(), interruption.on_interruption(end_event.set):
        server.start()
        print_message(f"the records page is {server.url} ; Ctrl-C ends it")
        end_event.wait()
        server.stop()
    interruption.clear_signal()  # a signal is the normal end of this command, so it isn't an error
    return 0


def _port_error_message(error: OSError, port: int) -> str:
    remedy = "choose another with --port N (0: any free port), or with the setting ui_port"
    if error.errno == errno.EADDRINUSE:
        return f"port {port} is in use, perhaps by another `ondatra ui`; {remedy}"
    return f"port {port} can't be used ({error.strerror}); {remedy}"
