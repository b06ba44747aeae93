"""The conformance kit: what a push function gets wrong, in sentences; users find it one package up."""
