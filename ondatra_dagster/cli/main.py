"""The command `ondatra`. Each verb is in a module of `commands`, which is loaded when the verb is called."""

import importlib
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ondatra_dagster import interruption
from ondatra_dagster.app.error_traces import store_trace
from ondatra_dagster.cli.exit_codes_signals_and_pipes import FAILURE_CODE, INTERRUPTED_MESSAGE, run_process
from ondatra_dagster.cli.output import indent_lines, print_message
from ondatra_dagster.errors import InvalidSettingsError, OndatraError, ProjectError, SelectionError

if TYPE_CHECKING:
    from ondatra_dagster.app.open_run_or_dry_run import OpenRunService

VERBS = (
    *("dead", "docs", "doctor", "engine", "events", "forget", "history", "init", "lineage", "maintain", "pause"),
    *("query", "records", "replay", "resync", "resume", "run", "status", "ui", "validate"),
)
SHARED_MODULES = {  # verb → its module, for modules with two verbs
    **dict.fromkeys(("pause", "resume"), "pause_and_resume"),
    **dict.fromkeys(("resync", "forget"), "resync_and_forget"),
}
MAX_HELP_CHARACTERS = 1000  # more characters than any first sentence has
WRONG_INVOCATION_CODE = 2


class VerbGroup(click.Group):
    """A click group that only loads the module of the called verb, so that commands start quickly."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each verb's whole first sentence, on two lines if needed, because click would shorten the sentence."""
        commands = ((name, self.get_command(ctx, name)) for name in VERBS)
        rows = [(name, command.get_short_help_str(MAX_HELP_CHARACTERS)) for name, command in commands if command]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        module = importlib.import_module(f"ondatra_dagster.cli.commands.{SHARED_MODULES.get(cmd_name, cmd_name)}")
        command = getattr(module, cmd_name if cmd_name in SHARED_MODULES else "command")
        assert isinstance(command, click.Command)  # noqa: S101 - for the type checker
        return command


@click.command(cls=VerbGroup, help="SQL models become Delta tables, and just their changed rows reach your APIs.")
@click.version_option(package_name="ondatra")
def cli() -> None:
    """Do nothing: the verbs have no common options."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a verb, and end the process with the verb's exit code."""
    run_process(lambda: run_verb(arguments))


def run_verb(arguments: Sequence[str] | None = None, *, open_service: "OpenRunService | None" = None) -> int:
    """Run a verb and return its exit code. Print an error as a sentence on stderr.

    The codes are 0: success; 1: something failed; 2: wrong usage; 130 or 143: ended by a signal.

    Verbs that work with tables call `open_service`. By default this opens the tables with Spark.
    """
    try:
        with interruption.raise_on_signal():
            code = cli.main(arguments, prog_name="ondatra", standalone_mode=False, obj=open_service)
    except click.ClickException as error:
        error_output = io.StringIO()
        error.show(error_output)
        print_message(error_output.getvalue().rstrip("\n"))
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        if interruption.received_signal():
            return interruption.exit_code()  # run_process prints the message about the signal
        print_message(INTERRUPTED_MESSAGE)
        return FAILURE_CODE
    except SelectionError as error:
        print_message(indent_lines(str(error)))
        return WRONG_INVOCATION_CODE
    except OndatraError as error:
        problems = error.problems if isinstance(error, ProjectError | InvalidSettingsError) else (error,)
        print_message("\n".join(indent_lines(str(problem)) for problem in problems))
        return FAILURE_CODE
    except Exception as error:  # the outermost handler: the traceback goes to a file, and the user gets a sentence
        print_message(indent_lines(_format_unexpected_error(error)))
        return FAILURE_CODE
    return code if isinstance(code, int) else 0


def _format_unexpected_error(error: Exception) -> str:
    current_folder = Path.cwd()
    state = next(
        (path for folder in (current_folder, *current_folder.parents) if (path := folder / ".ondatra").is_dir()), None
    )
    return f"ondatra failed: {store_trace(error, state)}"


if __name__ == "__main__":
    main()
