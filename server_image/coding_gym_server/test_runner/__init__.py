"""The test runner process: runs hidden tests against a submission in another process."""
