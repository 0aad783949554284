"""DDLERROR: what becomes of a change of shape that the target refuses, or that can't be carried there.

    DDLERROR DEFAULT ABEND
    DDLERROR 42P07 IGNORE
    DDLERROR 55P03 ABEND RETRYOP MAXRETRIES 5 RETRYDELAY 10

Rule: the first with exactly the error's SQLSTATE, or the database's own number or name of it, counts, then the first
with DEFAULT, then ABEND. RETRYOP tries the whole batch again before the action is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from replicat.model.reperror import ABEND, CODE, DEFAULT, DISCARD, IGNORE, MOST_RETRIES
from trails.runtime.language import params
from trails.runtime.language.params import Statement

ACTIONS = (ABEND, IGNORE, DISCARD)
SHAPE = "{DEFAULT | SQLSTATE | error number or name} {ABEND | IGNORE | DISCARD} [RETRYOP MAXRETRIES n [RETRYDELAY s]]"
DEFAULT_DELAY = 10
MOST_DELAY = 86_400


@dataclass(frozen=True, slots=True)
class DdlErrorRule:
    """One DDLERROR; `delay` in seconds."""

    code: str
    action: str = ABEND
    retries: int = 0
    delay: int = DEFAULT_DELAY


def ddl_rule_for(rules: Sequence[DdlErrorRule], sqlstate: str, code: str) -> DdlErrorRule:
    """What the rules say of an error."""
    named = [rule for rule in rules if rule.code in {sqlstate, code} - {""}]
    rest = [rule for rule in rules if rule.code == DEFAULT]
    return (named or rest or [DdlErrorRule(DEFAULT)])[0]


def ddl_error(statement: Statement) -> DdlErrorRule:
    """For the keyword table. Raises ParamError."""
    words = [str(word).upper() for word in statement.words]
    if len(words) < 2 or not (words[0] == DEFAULT or CODE.match(words[0])) or words[1] not in ACTIONS:
        raise statement.error(SHAPE)
    code, action, *rest = words
    if not rest:
        return DdlErrorRule(code, action)
    values = dict(zip(rest[1::2], rest[2::2], strict=False))
    known = set(values) <= {"MAXRETRIES", "RETRYDELAY"} and "MAXRETRIES" in values
    if rest[0] != "RETRYOP" or len(rest) % 2 == 0 or not known:
        raise statement.error(SHAPE)
    return DdlErrorRule(
        code,
        action,
        params.whole(statement, values["MAXRETRIES"], 1, MOST_RETRIES),
        params.whole(statement, values.get("RETRYDELAY", str(DEFAULT_DELAY)), 0, MOST_DELAY),
    )
