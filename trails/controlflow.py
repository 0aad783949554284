"""What only code catches: an exception here carries a decision up to the one who takes it, and no message to a person.

The other tree is errors.py: what people read.
Rule: each class is caught by its own name. None is a GateError, so whoever tells errors to people cannot catch one by
accident, and one that leaves a process is a bug.
"""

from __future__ import annotations


class ControlFlowError(Exception):
    """Base of what only code catches; never raised itself, and never caught by this name."""
