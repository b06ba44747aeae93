"""The command line's fixtures: a shop in the current folder, with a demo API on loopback."""

from support.projects.cli_fixtures import ondatra, shop

__all__ = ["ondatra", "shop"]
