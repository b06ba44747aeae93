"""A session of this process in an engine's Spark context."""

from typing import Any

from py4j.clientserver import ClientServer, JavaClient, JavaParameters, PythonParameters
from py4j.java_gateway import java_import
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from ondatra_dagster.warehouse.spark.engine_client import EngineLease, EngineUnavailableError
from ondatra_dagster.warehouse.spark.jvm_process import JAVA_IMPORTS


class EngineSession:
    """A new session in the context that all leases share. Its settings and temporary views are separate."""

    def __init__(self, lease: EngineLease) -> None:
        """Connect to the lease's gateway. Raises EngineUnavailableError."""
        try:
            self._gateway = _NamedGateway(lease)
            self.session = connect_session(self._gateway)
        except (Py4JError, OSError) as error:
            raise EngineUnavailableError(f"the engine's Spark doesn't answer ({error})") from error

    def close(self) -> None:
        """Close the connections, and forget the Spark context. The engine keeps it, so it isn't stopped."""
        SparkContext._active_spark_context = None  # noqa: SLF001 - pyspark has no other way to forget a context
        SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001
        self._gateway.close()


def connect_session(gateway: ClientServer) -> SparkSession:
    """Return a new session in the Spark context that the gateway's JVM already has."""
    for name in JAVA_IMPORTS:
        java_import(gateway.jvm, name)
    jvm = gateway.jvm
    java_session = jvm.org.apache.spark.sql.classic.SparkSession.getDefaultSession().get()
    java_context = jvm.JavaSparkContext.fromSparkContext(java_session.sparkContext())
    conf = SparkConf(_jvm=jvm, _jconf=java_context.getConf())
    context = SparkContext(gateway=gateway, jsc=java_context, conf=conf)
    return SparkSession(context, java_session.newSession())


class _NamedJavaClient(JavaClient):  # type: ignore[misc]  # py4j has no types
    """A client whose threads in the JVM have the lease's name: the engine waits for the end of these threads."""

    lease_name = ""

    def _create_new_connection(self) -> Any:
        connection = super()._create_new_connection()
        thread_reference = connection.send_command("c\nz:java.lang.Thread\ncurrentThread\ne\n")[2:].strip()
        connection.send_command(f"c\n{thread_reference}\nsetName\ns{self.lease_name}\ne\n")
        return connection


class _NamedGateway(ClientServer):  # type: ignore[misc]  # py4j has no types
    """A gateway to the JVM in which each thread has the lease's name."""

    def __init__(self, lease: EngineLease) -> None:
        self._lease_name = lease.name
        super().__init__(
            java_parameters=JavaParameters(port=lease.gateway_port, auth_token=lease.gateway_secret, auto_convert=True),
            python_parameters=PythonParameters(port=0, eager_load=False),
        )

    def _create_gateway_client(self) -> Any:
        client = _NamedJavaClient(self.java_parameters, self.python_parameters)
        client.lease_name = self._lease_name
        return client
