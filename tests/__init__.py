"""moedsl's tests; docs/testing.md says what is where."""
