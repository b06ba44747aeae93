"""The parser of a lib/*.star file: its config and its functions' parameters, without running it."""

import ast
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from ondatra_dagster.delivery.push.api_dict_parser import FUNCTION_PARAMETERS, read_api
from ondatra_dagster.delivery.push.push_config import PushConfig
from ondatra_dagster.errors import Problem
from ondatra_dagster.project.spelling_suggestions import suggest_correction


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class PushFile:
    """A parsed lib/*.star file that has no problems."""

    path: Path
    text: str
    config: PushConfig
    function_parameters: Mapping[str, frozenset[str]]  # for each of push, poll and finalize that the file has


def parse_push_file(path: Path, file: str) -> tuple[PushFile | None, Sequence[Problem]]:
    """Return the parsed file, or None and all its problems; `file` is its name in messages."""
    try:
        text = path.read_text(encoding="utf-8-sig")
        tree = ast.parse(text)
    except (OSError, UnicodeDecodeError) as error:
        return None, [unreadable_file_problem(file, error)]
    except SyntaxError as error:
        return None, [_new_problem(file, error.lineno or 1, f"can't be read: {error.msg}", "correct the line")]
    config, problems = read_api(tree, file)
    functions = {  # if two functions have the same name, the last one counts
        statement.name: statement
        for statement in tree.body
        if isinstance(statement, ast.FunctionDef) and statement.name in FUNCTION_PARAMETERS
    }
    problems = [*problems, *_find_missing_functions(functions, config, file)]
    if config is None:
        return None, problems
    known_parameters = {name: (*FUNCTION_PARAMETERS[name], *config.push.args) for name in functions}
    for name, function in functions.items():
        problems += _signature_problems(function, known_parameters[name], file)
    if problems:
        return None, problems
    config = dataclasses.replace(config, functions=frozenset(functions))
    parameters = {name: _parameter_names(function, known_parameters[name]) for name, function in functions.items()}
    return PushFile(path=path, text=text, config=config, function_parameters=parameters), ()


def exported_names(text: str) -> set[str] | None:
    """Return the names that other files can load from a file with this text.

    Return None if that isn't certain without running the file.
    """
    try:
        body = ast.parse(text).body
    except SyntaxError:
        return None
    if any(isinstance(statement, ast.For | ast.If | ast.With) for statement in body):
        return None
    function_names = {statement.name for statement in body if isinstance(statement, ast.FunctionDef)}
    assigned_names = {
        node.id
        for statement in body
        if isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign)
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    return {name for name in function_names | assigned_names if not name.startswith("_")}


def unreadable_file_problem(file: str, error: OSError | UnicodeDecodeError) -> Problem:
    """Return the problem of a file that can't be read."""
    if isinstance(error, OSError):
        return _new_problem(file, 1, f"the file can't be read: {error.strerror}", "make it readable")
    line = error.object.count(b"\n", 0, error.start) + 1
    return _new_problem(file, line, "the file is not UTF-8", "save it as UTF-8")


def _find_missing_functions(
    functions: Mapping[str, ast.FunctionDef], config: PushConfig | None, file: str
) -> list[Problem]:
    place = "at the top level of the file"
    problems = []
    if "push" not in functions:
        problems.append(_new_problem(file, 1, "has no push()", f"write def push(rows): … {place}"))
    if config and config.push.batch_mode == "async" and "poll" not in functions:
        problem = 'has no poll(), which "batch_mode": "async" calls to read the state of a job'
        problems.append(_new_problem(file, 1, problem, f"write def poll(job_ref): … {place}"))
    return problems


def _parameter_names(function: ast.FunctionDef, known_names: Sequence[str]) -> frozenset[str]:
    if function.args.kwarg:
        return frozenset(known_names)
    return frozenset(arg.arg for arg in (*function.args.args, *function.args.kwonlyargs))


def _signature_problems(function: ast.FunctionDef, known_names: Sequence[str], file: str) -> list[Problem]:
    problems = [
        _new_problem(
            file,
            arg.lineno,
            f"{function.name}() has a parameter {arg.arg!r} that nothing fills",
            suggest_correction(arg.arg, known_names, plural="parameters"),
        )
        for arg in (*function.args.args, *function.args.kwonlyargs)
        if arg.arg not in known_names
    ]
    if function.args.vararg or function.args.posonlyargs:
        remedy = "parameters are matched by name: leave out '*' and '/'"
        problems.append(_new_problem(file, function.lineno, f"{function.name}() has positional parameters", remedy))
    return problems


def _new_problem(file: str, line: int, description: str, remedy: str) -> Problem:
    return Problem(file=file, line=line, description=description, remedy=remedy)
