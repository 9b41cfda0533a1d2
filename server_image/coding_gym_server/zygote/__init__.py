"""Zygote and session roots: trusted, single-threaded processes that fork all others."""
