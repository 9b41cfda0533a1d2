"""Policies, which choose the actions of recorded episodes."""
