"""ondatra on Dagster: SQL models become Delta tables, and their changed rows reach APIs."""
