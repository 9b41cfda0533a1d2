"""Audits of verifiers: whether they can be fooled, and whether their verdicts depend on chance."""

from coding_gym.audit.auditing import audit
from coding_gym.audit.hacks import Hack, load_hacks, own_hacks
from coding_gym.audit.report import AuditReport, Check, Finding, wilson_interval
from coding_gym.audit.verifiers import FunctionVerifier, GraderVerifier, Judgment, Verifier, load_verifier

__all__ = [
    "AuditReport",
    "Check",
    "Finding",
    "FunctionVerifier",
    "GraderVerifier",
    "Hack",
    "Judgment",
    "Verifier",
    "audit",
    "load_hacks",
    "load_verifier",
    "own_hacks",
    "wilson_interval",
]
