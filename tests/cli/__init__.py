"""Tests of coding_gym.cli."""
