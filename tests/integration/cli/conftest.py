"""The fixtures for commands: a shop as the current folder, and a demo API on loopback."""

from support.projects.cli_fixtures import ondatra, shop

__all__ = ["ondatra", "shop"]
