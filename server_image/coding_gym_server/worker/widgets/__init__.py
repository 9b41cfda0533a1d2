"""Widgets of the GUI toolkits in a worker, read through the toolkits' own introspection."""
