"""What runs a project, without Dagster: the opened project, its runs, dry runs, maintenance and alerts."""
