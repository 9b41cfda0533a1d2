"""Tests of coding_gym.media."""
