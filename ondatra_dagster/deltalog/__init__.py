"""The Delta transaction log, read without Spark."""
