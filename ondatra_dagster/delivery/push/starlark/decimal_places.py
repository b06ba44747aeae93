"""Where decimals are in a column's values, told by its type as Spark spells it."""

from collections.abc import Iterator

from ondatra_dagster.changes import Json

NUMBER = "number"


def decimal_places(type_name: str) -> Json:
    """How prelude.star finds them: "number", ["each", …], ["fields", {name: …}]; None when there are none.

    A map's keys stay texts, as they are in JSON.
    """
    if type_name.startswith("decimal"):
        return NUMBER
    outer, _, inner = type_name.removesuffix(">").partition("<")
    if outer == "array":
        return _each(decimal_places(inner))
    if outer == "map":
        return _each(decimal_places(list(_parts(inner))[-1]))
    if outer == "struct":
        fields = [part.partition(":") for part in _parts(inner)]
        found: Json = {name: places for name, _, of in fields if (places := decimal_places(of))}
        return ["fields", found] if found else None
    return None


def _each(places: Json) -> Json:
    return ["each", places] if places else None


def _parts(inner: str) -> Iterator[str]:
    """What stands between the commas that are in no brackets."""
    depth = begin = 0
    for at, character in enumerate(inner):
        depth += (character in "<(") - (character in ">)")
        if character == "," and depth == 0:
            yield inner[begin:at]
            begin = at + 1
    yield inner[begin:]
