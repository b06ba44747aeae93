"""The services that run a project without Dagster: the workspace, runs, dry runs, maintenance and alerts."""
