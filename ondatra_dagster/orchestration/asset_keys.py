"""The Dagster asset keys of models and syncs, and op names that can't collide."""

import hashlib
import re

import dagster as dg

from ondatra_dagster.project.model import FileInput, Model, SourceInput

INVALID_CHARACTERS = re.compile(r"[^A-Za-z0-9_.-]")


def model_key(model: Model) -> dg.AssetKey:
    return dg.AssetKey(model.key_path)


def source_key(source: SourceInput) -> dg.AssetKey:
    """Return the key of a source table, which another program writes: crm.deals is crm/deals."""
    return dg.AssetKey(_valid_parts([source.source, source.table]))


def file_key(file_input: FileInput) -> dg.AssetKey:
    """Return the key of a file or of a pattern of files, for any read options: csv/data/customers.csv."""
    return dg.AssetKey(
        _valid_parts([file_input.format, *(part for part in file_input.path.split("/") if part not in ("", "."))])
    )


def sync_key(model: Model) -> dg.AssetKey:
    """Return the key of the asset that represents a model's rows at their destination."""
    return dg.AssetKey(["push", *model.key_path])


def op_name(key: dg.AssetKey, suffix: str = "") -> str:
    """Return a name for the asset's op: a__b, with a digest where another key could give the same name."""
    name = "__".join(key.path)
    if any("__" in part or part.startswith("_") or part.endswith("_") for part in key.path):
        name = f"{name}__{hashlib.sha256('/'.join(key.path).encode()).hexdigest()[:8]}"
    return f"{name}__{suffix}" if suffix else name


def _valid_parts(parts: list[str]) -> list[str]:
    """Return the parts of a key in characters that Dagster accepts in names; a digest keeps keys different."""
    valid_parts = [INVALID_CHARACTERS.sub("_", name_part) for name_part in parts]
    if valid_parts == parts:
        return parts
    return [*valid_parts[:-1], f"{valid_parts[-1]}_{hashlib.sha256('/'.join(parts).encode()).hexdigest()[:8]}"]
