"""The command `ondatra`. Each verb is a module beside, loaded when it is called."""

import importlib
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ondatra_dagster import interruption
from ondatra_dagster.cli.output import indented, say
from ondatra_dagster.cli.process import FAILED, INTERRUPTED, run_process
from ondatra_dagster.errors import BadSettingsError, OndatraError, ProjectError, SelectionError
from ondatra_dagster.orchestration.traces import keep_trace

if TYPE_CHECKING:
    from ondatra_dagster.orchestration.opening import OpenEngine

VERBS = (
    *("dead", "docs", "doctor", "events", "forget", "history", "init", "lineage", "maintain", "pause"),
    *("query", "records", "replay", "resync", "resume", "run", "status", "ui", "validate"),
)
WHOLE = 1000  # letters: more than any sentence has
WRONG_INVOCATION = 2


class Verbs(click.Group):
    """Loads the module of a verb when that is asked for: a quick command shouldn't wait for a slow one."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each verb's first sentence in full, over two lines where it needs them: click cuts it off."""
        commands = ((name, self.get_command(ctx, name)) for name in VERBS)
        rows = [(name, command.get_short_help_str(WHOLE)) for name, command in commands if command]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command = importlib.import_module(f"ondatra_dagster.cli.{cmd_name}").command
        assert isinstance(command, click.Command)  # noqa: S101 - for the type checker
        return command


@click.command(cls=Verbs, help="SQL models become Delta tables, and just their changed rows reach your APIs.")
@click.version_option(package_name="ondatra")
def cli() -> None:
    """Nothing is common to all verbs."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a verb, and end the process with its exit code."""
    run_process(lambda: code_of(arguments))


def code_of(arguments: Sequence[str] | None = None, *, opened: "OpenEngine | None" = None) -> int:
    """0: all went well; 1: something didn't; 2: wrong invocation; 130 or 143: a signal ended it.

    An error is a sentence on stderr.

    Verbs that work with tables open them by `opened`; where nothing is said, with Spark.
    """
    try:
        with interruption.interruptible():
            code = cli.main(arguments, prog_name="ondatra", standalone_mode=False, obj=opened)
    except click.ClickException as error:
        shown = io.StringIO()
        error.show(shown)
        say(shown.getvalue().rstrip("\n"))
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        if interruption.received():
            return interruption.exit_code()  # the process says so when all has come to its end
        say(INTERRUPTED)
        return FAILED
    except SelectionError as error:
        say(indented(str(error)))
        return WRONG_INVOCATION
    except OndatraError as error:
        say(_sentences(error))
        return FAILED
    except Exception as error:  # the edge: a trace is for us, a sentence for the user
        say(indented(_unforeseen(error)))
        return FAILED
    return code if isinstance(code, int) else 0


def _sentences(error: OndatraError) -> str:
    """Return a line for each problem; a problem's own further lines are indented."""
    problems = error.problems if isinstance(error, ProjectError | BadSettingsError) else (error,)
    return "\n".join(indented(str(problem)) for problem in problems)


def _unforeseen(error: Exception) -> str:
    here = Path.cwd()
    state = next((at for above in (here, *here.parents) if (at := above / ".ondatra").is_dir()), None)
    return f"ondatra failed: {keep_trace(error, state)}"


if __name__ == "__main__":
    main()
