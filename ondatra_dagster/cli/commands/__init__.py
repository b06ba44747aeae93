"""One module for each command of `ondatra`."""
