"""Other projects, measured in turns with this package."""
