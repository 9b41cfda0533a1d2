"""Tests of graphical programs by their screen content."""
