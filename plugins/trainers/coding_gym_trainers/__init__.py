"""Adapters to other libraries, each in a module that is imported on demand."""
