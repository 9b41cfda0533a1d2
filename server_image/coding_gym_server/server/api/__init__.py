"""Network APIs of the server: one module per protocol."""
