"""What can be known of a lib/*.star file without running it: its config, and what its push() asks for."""

import ast
import dataclasses
from collections.abc import Sequence
from pathlib import Path

from ondatra_dagster.delivery.api_dict import PUSH_PARAMETERS, read_api
from ondatra_dagster.delivery.push_config import PushConfig
from ondatra_dagster.errors import Problem
from ondatra_dagster.project.suggestions import correction


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PushSource:
    """One file, read and found to be in order."""

    path: Path
    text: str
    config: PushConfig
    parameters: frozenset[str]  # of push(), to be handed over by name


def read_source(path: Path, file: str) -> tuple[PushSource | None, Sequence[Problem]]:
    """The file as a value, or None and all that is wrong with it; `file` is its name in messages."""
    try:
        text = path.read_text(encoding="utf-8-sig")
        tree = ast.parse(text)
    except (OSError, UnicodeDecodeError) as error:
        return None, [unreadable(file, error)]
    except SyntaxError as error:
        return None, [_problem(file, error.lineno or 1, f"can't be read: {error.msg}", "mend the line")]
    config, problems = read_api(tree, file)
    push = _push_of(tree)
    if push is None:
        what, remedy = "has no push()", "write def push(rows): … at the top level of the file"
        return None, [*problems, _problem(file, 1, what, remedy)]
    known = (*PUSH_PARAMETERS, *(config.push.args if config else ()))
    problems = [*problems, *(_signature_problems(push, known, file) if config else ())]
    if config is None or problems:
        return None, problems
    return PushSource(path=path, text=text, config=config, parameters=_parameters(push, known)), ()


def exported_names(text: str) -> set[str] | None:
    """What other files can load of this one; None when that isn't plain."""
    try:
        body = ast.parse(text).body
    except SyntaxError:
        return None
    if any(isinstance(statement, ast.For | ast.If | ast.With) for statement in body):
        return None
    defined = {statement.name for statement in body if isinstance(statement, ast.FunctionDef)}
    assigned = {
        node.id
        for statement in body
        if isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign)
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    return {name for name in defined | assigned if not name.startswith("_")}


def unreadable(file: str, error: OSError | UnicodeDecodeError) -> Problem:
    """Why a file has no text."""
    if isinstance(error, OSError):
        return _problem(file, 1, f"the file can't be read: {error.strerror}", "make it readable")
    line = error.object.count(b"\n", 0, error.start) + 1
    return _problem(file, line, "the file is not UTF-8", "save it as UTF-8")


def _push_of(tree: ast.Module) -> ast.FunctionDef | None:
    named = [each for each in tree.body if isinstance(each, ast.FunctionDef) and each.name == "push"]
    return named[-1] if named else None


def _parameters(push: ast.FunctionDef, known: Sequence[str]) -> frozenset[str]:
    if push.args.kwarg:
        return frozenset(known)
    return frozenset(arg.arg for arg in (*push.args.args, *push.args.kwonlyargs))


def _signature_problems(push: ast.FunctionDef, known: Sequence[str], file: str) -> list[Problem]:
    problems = [
        _problem(
            file,
            arg.lineno,
            f"push() has a parameter {arg.arg!r} that nothing fills",
            correction(arg.arg, known, plural="parameters"),
        )
        for arg in (*push.args.args, *push.args.kwonlyargs)
        if arg.arg not in known
    ]
    if push.args.vararg or push.args.posonlyargs:
        remedy = "parameters are matched by name: leave out '*' and '/'"
        problems.append(_problem(file, push.lineno, "push() takes parameters by place", remedy))
    return problems


def _problem(file: str, line: int, what: str, remedy: str) -> Problem:
    return Problem(file=file, line=line, what=what, remedy=remedy)
