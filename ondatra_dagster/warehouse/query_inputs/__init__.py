"""What a model's query reads: pinned tables, files, earlier results."""
