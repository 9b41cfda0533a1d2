"""Tests of coding_gym.envs."""
