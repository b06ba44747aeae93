"""A trial of Spark for `ondatra doctor`: a start, a query, and where Spark runs here, a Delta table."""

from pathlib import Path

from ondatra_dagster.errors import SetUpError
from ondatra_dagster.project.settings.settings import Settings
from ondatra_dagster.warehouse.spark_errors import explained_at
from ondatra_dagster.warehouse.spark_session import Warehouse


def try_spark(settings: Settings, folder: Path) -> str:
    """Start Spark and use it; return what went well. Raises WarehouseError."""
    with (
        Warehouse(settings) as warehouse,
        explained_at("Spark started, and a first query failed", raises=SetUpError),
    ):
        session = warehouse.session
        session.range(1).collect()
        if settings.spark.remote or not settings.spark.master.startswith("local"):
            return f"Spark {session.version} started and ran a query"  # its disk is another machine's
        table = str(folder / "trial")
        session.range(1).write.format("delta").save(table)
        session.read.format("delta").load(table).collect()
        return f"Spark {session.version} started, and wrote and read a Delta table"
