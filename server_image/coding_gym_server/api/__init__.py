"""The faces of the server: one module per protocol."""
