"""A program as a user writes it. mypy checks it, so the public names have their types."""

from pathlib import Path
from typing import assert_type

import dagster as dg

from ondatra_dagster import build_definitions
from ondatra_dagster.testing import PushCase, problems_of, running_fake_api

definitions = assert_type(build_definitions(Path()), dg.Definitions)
case = PushCase(library=Path("lib/crm_push.star"), kind="merge", key=["id"], versions=[[{"id": 1}]])
problems = assert_type(problems_of(case), list[str])
with running_fake_api() as api:
    url = assert_type(api.url, str)
