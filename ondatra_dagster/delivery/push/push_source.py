"""What can be known of a lib/*.star file without running it: its config, and what its functions ask for."""

import ast
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from ondatra_dagster.delivery.push.api_dict import PARAMETERS, read_api
from ondatra_dagster.delivery.push.push_config import PushConfig
from ondatra_dagster.errors import Problem
from ondatra_dagster.project.suggestions import correction


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PushSource:
    """One file, read and found to be in order."""

    path: Path
    text: str
    config: PushConfig
    functions: Mapping[str, frozenset[str]]  # push, poll, finalize: those it has, with their parameters


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
    functions = _functions_of(tree)
    problems = [*problems, *_missing(functions, config, file)]
    if config is None:
        return None, problems
    known = {name: (*PARAMETERS[name], *config.push.args) for name in functions}
    for name, function in functions.items():
        problems += _signature_problems(function, known[name], file)
    if problems:
        return None, problems
    config = dataclasses.replace(config, functions=frozenset(functions))
    parameters = {name: _parameters(function, known[name]) for name, function in functions.items()}
    return PushSource(path=path, text=text, config=config, functions=parameters), ()


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


def _functions_of(tree: ast.Module) -> Mapping[str, ast.FunctionDef]:
    """The functions that are called by us; of two of one name the last."""
    return {
        each.name: each for each in tree.body if isinstance(each, ast.FunctionDef) and each.name in PARAMETERS
    }


def _missing(functions: Mapping[str, ast.FunctionDef], config: PushConfig | None, file: str) -> list[Problem]:
    place = "at the top level of the file"
    problems = []
    if "push" not in functions:
        problems.append(_problem(file, 1, "has no push()", f"write def push(rows): … {place}"))
    if config and config.push.batch_mode == "async" and "poll" not in functions:
        what = 'has no poll(), which "batch_mode": "async" asks how a job stands'
        problems.append(_problem(file, 1, what, f"write def poll(job_ref): … {place}"))
    return problems


def _parameters(function: ast.FunctionDef, known: Sequence[str]) -> frozenset[str]:
    if function.args.kwarg:
        return frozenset(known)
    return frozenset(arg.arg for arg in (*function.args.args, *function.args.kwonlyargs))


def _signature_problems(function: ast.FunctionDef, known: Sequence[str], file: str) -> list[Problem]:
    problems = [
        _problem(
            file,
            arg.lineno,
            f"{function.name}() has a parameter {arg.arg!r} that nothing fills",
            correction(arg.arg, known, plural="parameters"),
        )
        for arg in (*function.args.args, *function.args.kwonlyargs)
        if arg.arg not in known
    ]
    if function.args.vararg or function.args.posonlyargs:
        remedy = "parameters are matched by name: leave out '*' and '/'"
        problems.append(
            _problem(file, function.lineno, f"{function.name}() takes parameters by place", remedy)
        )
    return problems


def _problem(file: str, line: int, what: str, remedy: str) -> Problem:
    return Problem(file=file, line=line, what=what, remedy=remedy)
