"""The `ondatra init` command where no project can be created: it prints a sentence, and leaves nothing."""

from pathlib import Path

import pytest
from support.processes.cli_terminal import CommandLine


@pytest.mark.parametrize("folder", ["/dev/null", "/dev/null/x", "/proc/x"])
def test_a_path_where_no_folder_can_be_created_is_refused(ondatra: CommandLine, folder: str) -> None:
    result = ondatra("init", folder)
    assert (1, "") == (result.exit_code, result.stdout)
    assert result.stderr.startswith(f"{folder} can't be made a project (")
    assert result.stderr.endswith("); name another folder\n")
    assert 1 == len(result.stderr.splitlines())


def test_a_name_that_looks_like_an_option_is_refused(
    ondatra: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Commands would read the name as an option."""
    monkeypatch.chdir(tmp_path)
    result = ondatra("init", "--", "-x")
    assert (1, "commands take -x as an option; choose a name that doesn't begin with -\n") == (
        result.exit_code,
        result.stderr,
    )
    assert [] == list(tmp_path.iterdir())
