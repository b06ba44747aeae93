"""The kit's one question: what does this push function get wrong?"""

from ondatra_dagster.delivery.push.starlark.push_library import load_library
from ondatra_dagster.errors import ProjectError
from ondatra_dagster.testing.conformance.case import PushCase
from ondatra_dagster.testing.conformance.play import open_stage
from ondatra_dagster.testing.conformance.rules import FIRST, RULES


def problems_of(case: PushCase) -> list[str]:
    """What the function gets wrong, in sentences; none when it keeps the contract.

    It is run on a real queue against a fake API, through every change of the case's versions and every fault.
    Nothing leaves this machine, whatever addresses the function has.
    """
    try:
        library = load_library(case.path)
    except ProjectError as error:
        return [str(problem) for problem in error.problems]
    with open_stage(library, case) as stage:
        found = [problem for rule in FIRST for problem in rule(stage, case)]
        if not found:  # else every other rule would tell the same once more
            found = [problem for rule in RULES for problem in rule(stage, case)]
    return list(dict.fromkeys(found))
