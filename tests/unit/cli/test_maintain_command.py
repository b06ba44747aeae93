"""`ondatra maintain` as it is typed: each duty tells what it did."""

from support.shop import Shop
from support.terminal import Terminal

DUTIES = [
    *("feeds", "sync_log", "tracking_retention", "fact_tables", "tables"),
    *("dead_letters", "state_files", "logs", "alerts"),
]


def test_each_duty_is_a_line_or_an_object(shop: Shop, ondatra: Terminal) -> None:
    """For people on stderr, for programs on stdout."""
    ondatra.run(shop)
    said = ondatra("maintain", shop=shop)
    assert (0, "") == (said.code, said.out)
    assert [f"✓ {duty}" for duty in DUTIES] == [line.partition(":")[0] for line in said.err.splitlines()]
    lines = ondatra("maintain", "--json", shop=shop).objects
    assert [(duty, True) for duty in DUTIES] == [(line["duty"], line["ok"]) for line in lines]
    assert all(line["did"] for line in lines)
