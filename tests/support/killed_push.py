"""A run of a shop that dies before its sync run can say so: `python -m support.killed_push ROOT URL`."""

import subprocess
import sys
from pathlib import Path

from support.plain_flush import Place, die_at
from support.ran_shop import run
from support.shop import Shop, write_contacts

from ondatra_dagster.sync.run_account import RunAccount

TESTS = Path(__file__).parents[1]


def killed_push(root: Path, url: str) -> str:
    """Have one be killed when its rows had been delivered; its sync run's name."""
    killed = subprocess.run([sys.executable, "-m", __name__, str(root), url], cwd=TESTS, check=False)
    assert killed.returncode < 0
    (run,) = Shop.at(root, url=url).workspace.history.runs("sync.crm")
    return run.run_id


if __name__ == "__main__":
    shop = Shop.at(Path(sys.argv[1]), url=sys.argv[2])
    write_contacts(shop.root, a1="ada@example.com", b2="bob@example.com")
    die_at(Place(RunAccount, "end"))
    run(shop)
