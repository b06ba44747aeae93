"""A module for each command of `ondatra`; two that belong together share one."""
