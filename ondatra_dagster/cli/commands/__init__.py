"""A module for each command of `ondatra`; pause and resume share one."""
