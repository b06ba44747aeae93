"""How models and syncs are called in Dagster: asset keys, and op names that can't collide."""

import hashlib

import dagster as dg

from ondatra_dagster.project.model import Model, SourceInput


def model_key(model: Model) -> dg.AssetKey:
    return dg.AssetKey(model.key_path)


def source_key(source: SourceInput) -> dg.AssetKey:
    """The asset that something else makes: crm.deals is crm/deals."""
    return dg.AssetKey([source.source, source.table])


def sink_key(model: Model) -> dg.AssetKey:
    """The asset that stands for a model's rows at their destination."""
    return dg.AssetKey(["push", *model.key_path])


def op_name(key: dg.AssetKey, suffix: str = "") -> str:
    """A name for what makes the asset: a__b, and a digest where another key could give the same."""
    name = "__".join(key.path)
    if any(_is_unclear(part) for part in key.path):
        name = f"{name}__{hashlib.sha256('/'.join(key.path).encode()).hexdigest()[:8]}"
    return f"{name}__{suffix}" if suffix else name


def _is_unclear(part: str) -> bool:
    return "__" in part or part.startswith("_") or part.endswith("_")
