"""The command that serves the demo API, until Ctrl-C or while another command runs.

    python -m ondatra_dagster.testing.demo_api
    python -m ondatra_dagster.testing.demo_api --state .ondatra/demo_api.json -- ondatra run

It exits with the exit code of the other command. Ctrl-C goes to the other command, which decides how it ends.
"""

import contextlib
import errno
import http.client
import signal
import subprocess
import threading
from pathlib import Path

import click
import orjson

from ondatra_dagster.count_time_and_size_format import format_count
from ondatra_dagster.testing.demo_api.demo_server import DemoApi, running_demo_api
from ondatra_dagster.testing.fake_api_server import LOOPBACK_HOST, RecordedCall

SHOWN_CALLS = 12


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--port", default=8321, show_default=True, help="Where on 127.0.0.1; 0 for any free port.")
@click.option("--state", type=click.Path(path_type=Path), help="A file that keeps what the API holds.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def main(context: click.Context, *, port: int, state: Path | None, command: tuple[str, ...]) -> None:
    """Serve a demo CRM and ERP on this machine while COMMAND runs, or until Ctrl-C."""
    try:
        with running_demo_api(port=port, state=state) as api:
            context.exit(run_command_with_api(api, command) if command else serve_until_signal(api))
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
    if not command or not is_own_demo_api(port, state):
        raise click.ClickException(
            f"port {port} is in use by another program: end it, or write another port into lib/*.star "
            "and give it here too (--port 8322; with make: PORT=8322)"
        )
    click.echo(f"using the demo API that already runs at http://{LOOPBACK_HOST}:{port}", err=True)
    context.exit(run_command(command))


def serve_until_signal(api: DemoApi) -> int:
    """Serve the demo API until Ctrl-C or SIGTERM. Return the exit code."""
    click.echo(f"the demo API's page is {api.url}; Ctrl-C ends it", err=True)
    end_event = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: end_event.set())
    end_event.wait()
    return 0


def run_command_with_api(api: DemoApi, command: tuple[str, ...]) -> int:
    """Run the command while the API is served, then print the calls that the API received."""
    calls_before = len(api.calls)
    click.echo(f"demo API: {api.url}", err=True)
    code = run_command(command)
    print_report(api, api.calls[calls_before:])
    return code


def run_command(command: tuple[str, ...]) -> int:
    """Run the command and return its exit code, in the way of a shell."""
    # catch SIGINT: if it were ignored, the command would ignore it too. The terminal sends Ctrl-C to both processes.
    signal.signal(signal.SIGINT, lambda *_: None)
    end_event = threading.Event()  # set if a SIGTERM arrives before the command has started
    signal.signal(signal.SIGTERM, lambda *_: end_event.set())
    with subprocess.Popen(command) as child:  # noqa: S603  # running the caller's command is what this is for
        signal.signal(signal.SIGTERM, lambda *_: child.terminate())
        if end_event.is_set():
            child.terminate()
        code = child.wait()
    return code if code >= 0 else 128 - code


def print_report(api: DemoApi, calls: tuple[RecordedCall, ...]) -> None:
    """Print the calls if they are few, otherwise the first failed ones. Then print what the CRM and the ERP contain."""
    click.echo(
        f"\nThe demo API got {format_count(len(calls), 'call')}:" if calls else "\nThe demo API got no call.", err=True
    )
    failed_calls = [call for call in calls if not 200 <= call.status < 300]
    shown_calls = calls if len(calls) <= SHOWN_CALLS else failed_calls[:SHOWN_CALLS]
    for call in shown_calls:
        line = f"  {call.method} {call.path} → {call.status or 'no answer'} {call.message}"
        click.echo(line.rstrip(), err=True)
    if len(shown_calls) < len(calls):
        click.echo(f"  {'and ' if shown_calls else ''}{len(calls) - len(shown_calls)} more", err=True)
    crm_text = f"{format_count(len(api.contacts()), 'contact')} with {len(api.timeline())} timeline entries"
    erp_text = f"{format_count(len(api.invoices()), 'invoice')} and {format_count(len(api.prices()), 'price')}"
    click.echo(f"The CRM holds {crm_text}; the ERP holds {erp_text}.", err=True)


def is_own_demo_api(port: int, state: Path | None) -> bool:
    """Return whether the server on this port is a demo API with this project's state file."""
    if state is None:
        return False
    connection = http.client.HTTPConnection(LOOPBACK_HOST, port, timeout=2)
    with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException, ValueError):
        connection.request("GET", "/state")
        demo_state = orjson.loads(connection.getresponse().read())
        return isinstance(demo_state, dict) and demo_state.get("state_file") == str(state.absolute())
    return False


if __name__ == "__main__":
    main(prog_name="python -m ondatra_dagster.testing.demo_api")
