"""Environments: single, vector, asynchronous, with tasks and with mouse and keyboard."""
