"""The recovery of a sync's queue: lost, stale or restored files, resync and forget."""
