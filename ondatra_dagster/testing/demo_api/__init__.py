"""A demo CRM and ERP on this machine, for the example project and for users' tests.

    with running_demo_api() as api:
        api.fail(status=500, times=2, path="/crm/*")
        ...
        assert {"C-1": {…}} == api.contacts()

The command `python -m ondatra_dagster.testing.demo_api` serves it until Ctrl-C, or while another command runs.
"""

from ondatra_dagster.testing.demo_api.demo_server import DEMO_KEY, DemoApi, running_demo_api

__all__ = ["DEMO_KEY", "DemoApi", "running_demo_api"]
