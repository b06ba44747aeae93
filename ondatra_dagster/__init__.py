"""The package ondatra on Dagster: SQL models become Delta tables, and their changed rows are sent to APIs."""
