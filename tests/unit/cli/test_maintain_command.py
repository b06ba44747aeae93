"""The `ondatra maintain` command: each duty reports its result."""

from support.processes.cli_terminal import CommandLine
from support.projects.shop_project import ShopProject

TASKS = [
    *("feeds", "sync_log", "tracking_retention", "fact_tables", "tables"),
    *("dead_letters", "state_files", "logs", "alerts"),
]


def test_each_duty_has_a_line_or_an_object(shop: ShopProject, ondatra: CommandLine) -> None:
    """Users read lines on stderr, and programs read objects on stdout."""
    ondatra.run_project(shop)
    result = ondatra("maintain", shop=shop)
    assert (0, "") == (result.exit_code, result.stdout)
    assert [f"✓ {task}" for task in TASKS] == [line.partition(":")[0] for line in result.stderr.splitlines()]
    lines = ondatra("maintain", "--json", shop=shop).json_lines
    assert [(task, True) for task in TASKS] == [(line["task"], line["ok"]) for line in lines]
    assert all(line["did"] for line in lines)
