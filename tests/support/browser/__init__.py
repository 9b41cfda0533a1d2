"""A real browser for the tests of pages."""
