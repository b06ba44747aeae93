"""A shop that the user stands in, beside a demo API on loopback."""

from support.projects.cli_fixtures import ondatra, shop

__all__ = ["ondatra", "shop"]
