"""Tests of coding_gym.sandbox."""
