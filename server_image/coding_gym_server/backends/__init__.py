"""How a worker executes code: one module per backend."""
