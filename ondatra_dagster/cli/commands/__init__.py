"""The commands of `ondatra`, with one module for each. Two pairs of related commands share a module."""
