"""A run of a shop that is killed before its sync run is recorded as ended.

Start it with `python -m support.processes.killed_dagster_push ROOT URL`.
"""

import subprocess
import sys
from pathlib import Path

from support.processes.plain_flush_kill_points import FlushKillPoint, kill_process_at
from support.projects.shop_project import ShopProject, write_contacts
from support.projects.shop_with_history import run_shop

from ondatra_dagster.sync.run_bookkeeping import RunBookkeeper

TESTS = Path(__file__).parents[2]


def run_killed_push(root: Path, url: str) -> str:
    """Run a process that is killed once its rows are delivered; return the id of its sync run."""
    killed = subprocess.run([sys.executable, "-m", __name__, str(root), url], cwd=TESTS, check=False)
    assert killed.returncode < 0
    (run,) = ShopProject.create(root, url=url).workspace.history.list_runs("sync.crm")
    return run.run_id


if __name__ == "__main__":
    shop = ShopProject.create(Path(sys.argv[1]), url=sys.argv[2])
    write_contacts(shop.root, a1="ada@example.com", b2="bob@example.com")
    kill_process_at(FlushKillPoint(RunBookkeeper, "end_run"))
    run_shop(shop)
