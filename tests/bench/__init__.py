"""Tests of coding_gym.bench."""
