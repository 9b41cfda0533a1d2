"""``coding-gym view``: recorded datasets in the browser."""
