"""The ``coding-gym`` command line."""
