"""The commands of `ondatra`, one module each. Two related commands share a module."""
