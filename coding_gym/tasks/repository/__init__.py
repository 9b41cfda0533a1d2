"""Tests of a repository in an image: they run in a new session of it, into which a submission's changes are carried."""
