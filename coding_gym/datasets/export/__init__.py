"""Exports of recorded episodes to the formats of other libraries."""
