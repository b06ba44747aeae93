"""The Dagster asset keys of models, syncs and sources, and op names that can't collide."""

import hashlib
import re

import dagster as dg

from ondatra_dagster.project.model import FileInput, Model, SourceInput

INVALID_CHARACTERS = re.compile(r"[^A-Za-z0-9_.-]")


def model_key(model: Model) -> dg.AssetKey:
    return dg.AssetKey(model.key_path)


def source_key(source: SourceInput) -> dg.AssetKey:
    """Return the key of a source table, which another program writes, such as crm/deals for crm.deals."""
    return dg.AssetKey(_valid_parts([source.source, source.table]))


def file_key(file_input: FileInput) -> dg.AssetKey:
    """Return the key of a file or a file pattern, such as csv/data/customers.csv. Read options don't change the key."""
    return dg.AssetKey(
        _valid_parts([file_input.format, *(part for part in file_input.path.split("/") if part not in ("", "."))])
    )


def sync_key(model: Model) -> dg.AssetKey:
    """Return the key of the asset that represents a model's rows at their destination."""
    return dg.AssetKey(["push", *model.key_path])


def op_name(key: dg.AssetKey, suffix: str = "") -> str:
    """Return the name of the asset's op, such as a__b. If another key could give this name, a digest is added."""
    name = "__".join(key.path)
    if any("__" in part or part.startswith("_") or part.endswith("_") for part in key.path):
        name = f"{name}__{hashlib.sha256('/'.join(key.path).encode()).hexdigest()[:8]}"
    return f"{name}__{suffix}" if suffix else name


def _valid_parts(parts: list[str]) -> list[str]:
    """Return the parts of a key with only characters that Dagster accepts.

    If characters were replaced, a digest keeps different keys distinct.
    """
    valid_parts = [INVALID_CHARACTERS.sub("_", name_part) for name_part in parts]
    if valid_parts == parts:
        return parts
    return [*valid_parts[:-1], f"{valid_parts[-1]}_{hashlib.sha256('/'.join(parts).encode()).hexdigest()[:8]}"]
