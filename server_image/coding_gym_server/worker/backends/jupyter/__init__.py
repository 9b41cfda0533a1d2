"""Jupyter backend: executes cells in Jupyter kernels."""
