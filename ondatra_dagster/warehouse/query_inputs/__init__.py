"""The inputs of a model's query: pinned tables, files, and earlier results."""
