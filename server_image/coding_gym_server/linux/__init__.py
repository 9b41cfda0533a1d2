"""Linux interfaces: processes, memory and signals."""
