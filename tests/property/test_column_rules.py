"""Projection of any images under any rules, against a model that knows columns by name only."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from trails.codec import decode_data, encode_data
from trails.columns import ColumnRule, Token, project
from trails.errors import OperatorError
from trails.format import BlockHeader, BlockKind
from trails.naming import TOKEN, ColumnName
from trails.record import MISSING, Column, Op, TableDef

NAMES = [*"abcdefg"]
SOME = st.lists(st.sampled_from(NAMES), max_size=4, unique=True)
VALUES = st.one_of(st.text("xé", max_size=3), st.none(), st.just(MISSING))


@st.composite
def tables(draw: st.DrawFn) -> TableDef:
    """Some of NAMES in any order, some of them the key."""
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, unique=True))
    key = draw(st.lists(st.sampled_from(names), max_size=2, unique=True))
    return TableDef("s", "t", tuple(Column(name, "text", "text", name in key) for name in names))


@st.composite
def rules(draw: st.DrawFn) -> ColumnRule:
    """Any options, under a wildcard or an exact name."""
    listed = tuple(map(ColumnName, draw(SOME)))
    only = draw(st.booleans())
    groups = draw(st.lists(st.lists(st.sampled_from(NAMES), min_size=2, max_size=3, unique=True), max_size=3))
    tokens = draw(st.lists(st.sampled_from("ABX"), max_size=2, unique=True))
    return ColumnRule(
        listed if only else (),
        () if only else listed,
        tuple(tuple(map(ColumnName, group)) for group in groups),
        tuple(Token(name, f"={name}") for name in tokens),
        strict=draw(st.booleans()),
    )


def reached(start: set[str], groups: list[set[str]]) -> set[str]:
    """All that travels with any of `start`."""
    for _ in groups:
        for group in groups:
            start = start | group if start & group else start
    return start


def model(rule: ColumnRule, table: TableDef) -> set[str] | None:
    """Names that are kept; None: the rule can't be obeyed."""
    names = {column.name for column in table.columns}
    listed = {name.name for name in (*rule.only, *rule.without)}
    groups = [{name.name for name in group} for group in rule.groups]
    if rule.strict and not listed.union(*groups) <= names:
        return None
    groups = [group & names for group in groups]
    kept = names
    if rule.only:
        kept = reached(listed & names, groups)
    if rule.without:
        kept = names - reached(listed & names, groups)
    return kept if kept and {table.columns[i].name for i in table.key} <= kept else None


@given(rules(), tables(), st.data())
def test_any_image_under_any_rule(rule: ColumnRule, table: TableDef, data: st.DataObject) -> None:
    """What is kept has the value it had, in the table's order; a group is whole or refused; tokens stand behind."""
    kept = model(rule, table)
    try:
        projection = project(rule, table, lambda group, name: None)
    except OperatorError:
        assert kept is None
        return
    assert kept is not None
    grouped = {name.name for group in rule.groups for name in group} & kept
    if projection is None:
        assert kept == {column.name for column in table.columns}
        assert not rule.tokens
        assert not grouped
        return
    names = [column.name for column in table.columns]
    left = [name for name in names if name in kept]
    tokens = [token.name for token in rule.tokens]
    sent = projection.definition.columns
    assert [column.name for column in sent] == [*left, *tokens]
    assert [column.type == TOKEN for column in sent] == [False] * len(left) + [True] * len(tokens)
    assert {c.name for c in sent if c.key} == {c.name for c in table.columns if c.key}
    images = st.lists(VALUES, min_size=len(names), max_size=len(names))
    after, before = data.draw(images), data.draw(st.one_of(st.none(), images))
    record = (Op.UPDATE, 0, after, before)
    expected = complete(names, grouped, after, before)
    try:
        found = projection.record(record, (Op.BEGIN, "1", "2", 3))
    except OperatorError:
        assert expected is None
        return
    assert expected is not None
    tail = [f"={name}" for name in tokens]
    assert list(found[2]) == [*(expected[name] for name in left), *tail]
    old = None if before is None else [*(before[names.index(name)] for name in left), *tail]
    assert (None if found[3] is None else list(found[3])) == old
    payload = encode_data([projection.definition.id], [found])
    header = BlockHeader(
        BlockKind.DATA, flags=payload.flags, raw_len=payload.raw_len, payload_len=len(payload.data), changes=1
    )
    assert decode_data(header, payload.data)[1] == [[Op.UPDATE, 0, list(found[2]), old]]


def complete(names: list[str], grouped: set[str], after: list[Any], before: list[Any] | None) -> dict[str, Any] | None:
    """The after image by name, its groups filled from the old row; None where that row does not have it either."""
    image = dict(zip(names, after, strict=True))
    old = dict(zip(names, before or [MISSING] * len(names), strict=True))
    for name in grouped:
        if image[name] is MISSING:
            image[name] = old[name]
    return None if any(image[name] is MISSING for name in grouped) else image
