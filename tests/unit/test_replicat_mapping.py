"""From MAPs and tables to plans: which MAP counts, which columns are written from what, and what is the key."""

from __future__ import annotations

import pickle
import re
from collections.abc import Sequence

import pytest

from replicat.maps.columns import MapErrors
from replicat.maps.expressions.compiling import Name
from replicat.maps.expressions.exact import SparkNode
from replicat.maps.rules import Rules, check_names, exception_rule, plan_table, rules_for
from replicat.model.mapparams import MapRule
from replicat.model.plan import Conflict, Slot, TablePlan
from replicat.model.target import TargetColumn, TargetTable
from replicat.params import ReplicatParams
from trails.errors import OperatorError
from trails.record import Column, TableDef
from trails.runtime.language.params import parse_text

HEAD = "REPLICAT rep1\nTARGETDB postgresql://u@h/d\n"


def read(text: str) -> ReplicatParams:
    """The MAPs begin in line 3."""
    return ReplicatParams.from_statements(parse_text(f"{HEAD}{text}\n", "r.prm"))


def table(*columns: str, key: str = "id", schema: str = "s", name: str = "t") -> TableDef:
    """A source table; `column:type`, text if no type is given."""
    pairs = [(column.partition(":")[0], column.partition(":")[2] or "text") for column in columns]
    return TableDef(schema, name, tuple(Column(n, t, t, n in key.split(",")) for n, t in pairs))


def target(*columns: str, unique: Sequence[str] = ("id",), name: str = "t") -> TargetTable:
    """A target table; `column:generated`, `column:always`, `column:soft` are what they say."""
    made = []
    for column in columns:
        bare, _, mark = column.partition(":")
        flags = {"generated": mark == "generated", "always": mark == "always", "soft": mark == "soft"}
        made.append(TargetColumn(bare, "bigint" if bare == "id" else "text", **flags))
    return TargetTable("p", name, tuple(made), tuple(frozenset(names.split(",")) for names in unique))


class Words:
    """Stands in for Spark: every lower-case word that is no function is a name, every result is a string."""

    def names(self, text: str) -> list[Name]:
        """See Sql."""
        bare = re.sub(r"'[^']*'", lambda m: " " * len(m[0]), text)
        return [
            Name(m.start(), m.end(), tuple(m[0].split("."))) for m in re.finditer(r"[a-z][a-z._]*\b(?!\s*\()", bare)
        ]

    def spans(self, text: str) -> frozenset[tuple[int, int]]:
        """See Sql."""
        return frozenset({(0, len(text))})

    def analysed(self, text: str, columns: Sequence[tuple[str, str]]) -> SparkNode:
        """See Sql."""
        return SparkNode("Any", "boolean" if any(sign in text for sign in "<>=") else "string")


def plan(options: str, source: TableDef, to: TargetTable, before: str = "") -> TablePlan:
    """The plan of `MAP s.t, TARGET p.t` with these options; the MAP is in line 3, its options in line 4."""
    (rule,) = read(f"{before}MAP s.t, TARGET p.t{',' if options else ''}\n{options};").maps
    made = plan_table(rule, source, to, sql=Words())
    assert pickle.loads(pickle.dumps(made)) == made
    return made


def errors(options: str, source: TableDef, to: TargetTable) -> list[str]:
    """What is wrong with it."""
    with pytest.raises(MapErrors) as caught:
        plan(options, source, to)
    return [str(error) for error in caught.value.errors]


# --- which MAP --------------------------------------------------------------------------------------------------------


def places(params: ReplicatParams, schema: str, name: str) -> list[tuple[str, str]]:
    """Where a table's rows go."""
    found = rules_for(params.maps, params.excludes, schema, name)
    return [rule.target.fill(schema, name) for rule in found.rules]


def test_exact_names_beat_wildcards_and_narrower_ones_wider_ones():
    """Their order in the file does not matter."""
    params = read(
        "MAP *.*, TARGET wide.*;\nMAP s.*, TARGET schema.*;\nMAP s.ord*, TARGET narrow.copy_*;\n"
        "MAP s.orders, TARGET exact.orders;\nMAPEXCLUDE s.x*, *.secret;"
    )
    assert places(params, "s", "orders") == [("exact", "orders")]
    assert places(params, "s", "order_lines") == [("narrow", "copy_order_lines")]
    assert places(params, "s", "people") == [("schema", "people")]
    assert places(params, "other", "people") == [("wide", "people")]
    assert places(params, "s", "xyz") == places(params, "other", "secret") == []
    assert rules_for(params.maps, params.excludes, "s", "xyz") == Rules()


def test_several_maps_of_one_source_all_apply():
    """Equal names, or equal wildcards."""
    params = read("MAP s.t, TARGET a.t;\nMAP s.t, TARGET b.t;\nMAP s.*, TARGET c.*;\nMAP s.*, TARGET c.all;")
    assert places(params, "s", "t") == [("a", "t"), ("b", "t")]
    assert places(params, "s", "u") == [("c", "u"), ("c", "all")]


def test_OT_33_rules_are_for_a_table_or_a_schema_and_there_may_be_several():
    """They know tables by their names alone: of what database a trail comes no rule asks, and none can say it."""
    params = read("MAP s.t, TARGET a.one;\nMAP s.t, TARGET b.two;\nMAP s.*, TARGET c.*;\nMAP other.*, TARGET d.*;")
    assert places(params, "s", "t") == [("a", "one"), ("b", "two")]
    assert places(params, "s", "u") == [("c", "u")]
    assert places(params, "other", "t") == [("d", "t")]
    assert places(params, "third", "t") == []
    with pytest.raises(OperatorError, match=r"r\.prm:3: MAP"):
        read("MAP shop.s.t, TARGET a.t;")


def test_wildcards_that_merely_overlap_are_ambiguous():
    """Both lines are named, and only where a table meets both."""
    params = read("MAP s.a*, TARGET p.*;\nMAP s.*z, TARGET q.*;")
    assert places(params, "s", "ab") == [("p", "ab")]
    with pytest.raises(
        OperatorError, match=r"r\.prm:4: MAP s\.az: ambiguous: s\.a\* of r\.prm:3 and s\.\*z of r\.prm:4"
    ):
        places(params, "s", "az")
    assert places(read("MAP s.a*, TARGET p.*;\nMAP s.*z, TARGET q.*;\nMAP s.az, TARGET p.az;"), "s", "az") == [
        ("p", "az")
    ]


def test_one_target_twice_is_refused_unless_asked_for():
    """ALLOWDUPTARGETMAP; also where only a wildcard shows it."""
    text = "MAP s.*, TARGET p.*;\nMAP s.*, TARGET p.t;"
    with pytest.raises(OperatorError, match=r"r\.prm:4: MAP s\.t: goes to p\.t already by r\.prm:3"):
        places(read(text), "s", "t")
    assert places(read(text), "s", "u") == [("p", "u"), ("p", "t")]
    assert places(read(f"ALLOWDUPTARGETMAP\n{text}"), "s", "t") == [("p", "t"), ("p", "t")]


def test_exceptions_only_is_apart():
    """It neither hides the other MAPs nor is hidden by them."""
    params = read("MAP s.t, TARGET p.t;\nMAP s.*, TARGET p.errors, EXCEPTIONSONLY;")
    found = rules_for(params.maps, params.excludes, "s", "t")
    assert [str(rule.target) for rule in found.rules] == ["p.t"]
    assert [str(rule.target) for rule in found.exceptions] == ["p.errors"]


# --- columns ----------------------------------------------------------------------------------------------------------


def test_columns_by_name():
    """Computed target columns are left out, other target columns are extras, a missing one is named with the MAP."""
    source = table("id:integer", "a", "g")
    made = plan("", source, target("note", "g:generated", "a", "id"))
    assert (made.pick, made.key, made.integer_key, made.mapping) == ((0, 1), (0,), True, None)
    assert (made.layout.columns, made.layout.extras, made.layout.arbiter) == (("id", "a"), ("note",), True)
    assert (made.layout.logical, made.columns) == (("integer", "text"), ("id", "a", "g"))
    (lacks,) = errors("", source, target("id", "g:generated"))
    assert lacks.startswith("r.prm:3: MAP s.t: target table p.t lacks column a. Add it")
    assert "computes key column id" in errors("", source, target("id:generated", "a", "g"))[0]


def test_names_meet_in_any_case_if_they_must():
    """As spelled first."""
    made = plan("", table("id", "Name", "name"), target("ID", "NAME", "name", unique=["ID"]))
    assert made.layout.columns == ("ID", "NAME", "name")
    assert made.layout.key == ("ID",)
    assert "lacks column Name" in errors("", table("id", "Name"), target("id", "NAME", "name"))[0]


def test_columns_that_the_target_lacks_are_skipped_where_asked_for():
    """And told, for counting; a column that an expression reads is not lost."""
    made = plan("", table("id", "a", "b"), target("id", "b"), before="IGNOREMISSINGCOLUMNS\n")
    assert (made.skipped, made.pick, made.layout.columns) == (("a",), (0, 2), ("id", "b"))
    made = plan("COLMAP (USEDEFAULTS, c = a)", table("id", "a", "b"), target("id", "b", "c"))
    assert (made.skipped, made.layout.columns, made.pick, made.mapping) == ((), ("id", "c", "b"), None, None)


def test_cols_and_colsexcept():
    """Under a wildcard, names that a table lacks are passed over."""
    source, to = table("id", "a", "b"), target("id", "a", "b")
    assert plan("COLS (ID, b)", source, to).pick == (0, 2)
    assert plan("COLSEXCEPT (b)", source, to).pick == (0, 1)
    assert plan("COLSEXCEPT (b)", source, target("id", "a")).pick == (0, 1)
    assert "COLS: the source table has no column c; its columns are id, a, b" in errors("COLS (id, c)", source, to)[0]
    assert "key column id of the source is not mapped" in errors("COLS (a)", source, to)[0]
    (rule,) = read("MAP s.*, TARGET p.*, COLSEXCEPT (b, c);").maps
    assert plan_table(rule, source, to).pick == (0, 1)


def test_renaming_needs_no_program():
    """Columns of the image, in other places or twice: rows are not touched by Python."""
    made = plan("COLMAP (no = id, x = b, y = b)", table("id", "a", "b"), target("no", "x", "y", unique=["no"]))
    assert made.mapping is None
    assert (made.layout.columns, made.pick, made.key, made.layout.key) == (("no", "x", "y"), (0, 2, 2), (0,), ("no",))
    assert made.columns == ("id", "a", "b")
    made = plan("COLMAP (a2 = a, id = id)", table("id", "a"), target("id", "a2"))
    assert (made.layout.columns, made.pick, made.columns) == (("id", "a2"), None, ("id", "a"))


def test_OT_35_columns_are_paired_included_and_excluded():
    """Each pair of COLMAP is one column left and one right; what COLSEXCEPT leaves out is left out on both sides."""
    source, to = table("id", "a", "b", "secret"), target("id", "x", "y", "a", "b", "secret")
    paired = plan("COLMAP (id = id, x = b, y = a)", source, to)
    assert {x: source.columns[n].name for x, n in zip(paired.layout.columns, paired.pick, strict=True)} == {
        "id": "id", "x": "b", "y": "a",
    }  # fmt: skip
    included = plan("COLS (id, b)", source, to)
    assert (included.layout.columns, included.pick) == (("id", "b"), (0, 2))
    excluded = plan("COLSEXCEPT (secret)", source, to)
    assert (excluded.layout.columns, excluded.pick) == (("id", "a", "b"), (0, 1, 2))
    assert "secret" in excluded.layout.extras
    both = plan("COLMAP (USEDEFAULTS, x = a), COLSEXCEPT (secret)", source, to)
    assert set(both.layout.columns) == {"id", "x", "a", "b"}
    assert "there is no column z" in errors("COLMAP (USEDEFAULTS, x = z)", source, to)[0]
    assert "has no column z" in errors("COLMAP (USEDEFAULTS, z = a)", source, to)[0]


def test_expressions_make_a_program():
    """Slots in the order of the layout; the key counts in the mapped row."""
    made = plan(
        "COLMAP (USEDEFAULTS, twice = a || a, op = change.operation, old = before.a, n = NULL),\n"
        "FILTER (ON INSERT, a > 'x'), WHERE (b = 'y')",
        table("a", "id:integer", "b"),
        target("id", "a", "b", "twice", "op", "old", "n"),
    )
    program = made.mapping
    assert program is not None
    assert made.layout.columns == ("a", "id", "b", "twice", "op", "old", "n")
    assert program.slots == (
        Slot("column", 0), Slot("column", 1), Slot("column", 2), Slot("expr", 0), Slot("fact", name="operation"),
        Slot("before", 0), Slot("const"),
    )  # fmt: skip
    assert (made.key, made.layout.key, made.pick, made.columns) == ((1,), ("id",), None, ("a", "id", "b"))
    assert [(f.expr, sorted(f.ops)) for f in program.filters] == [(1, ["INSERT"]), (2, [])]
    assert [e.where for e in program.expressions] == ["r.prm:4", "r.prm:5", "r.prm:5"]
    assert made.layout.logical == ("text", "integer", "text", "text", "text", "text", "text")
    assert not program.needs_before


def test_tokens_are_mapped_by_their_names_alone():
    """Never by default, even if the target has a column of that name."""
    source = table("id", "a", "ORIGIN:token")
    made = plan("", source, target("id", "a", "origin"))
    assert (made.layout.columns, made.pick) == (("id", "a"), (0, 1))
    made = plan("COLMAP (USEDEFAULTS, origin = token.origin)", source, target("id", "a", "origin"))
    assert made.layout.columns == ("id", "a", "origin")
    assert made.mapping is not None
    assert made.mapping.slots[2].kind == "token"


def test_identity_columns():
    """GENERATED ALWAYS AS IDENTITY takes a value at an insert, not at an update; as a key it never is updated."""
    assert plan("", table("id", "n"), target("id", "n:always")).layout.rewrite
    assert not plan("", table("id", "n"), target("id:always", "n")).layout.rewrite
    extra = plan("", table("id"), target("id", "n:always")).layout
    assert (extra.rewrite, extra.extras, extra.fixed) == (False, ("n",), ("n",))


def test_what_is_wrong_with_columns_is_told_all_together():
    """Each with the line where it stands."""
    found = errors(
        "COLMAP (USEDEFAULTS,\n nope = a,\n g = a,\n a = zzz,\n Name = a),\nKEYCOLS (nix)",
        table("id", "a", "lost"),
        target("id", "a", "g:generated", "NAME", "name2", "nAme"),
    )
    assert [text.split(". ")[0] for text in found] == [
        "r.prm:5: MAP s.t: COLMAP: target table p.t has no column nope; its columns are id, a, g, NAME, name2, nAme",
        "r.prm:6: MAP s.t: COLMAP: p.t computes column g itself",
        "r.prm:7: COLMAP a: zzz: there is no column zzz; there are id, a, lost",
        'r.prm:8: MAP s.t: COLMAP: Name may be "NAME", "nAme"',
        "r.prm:3: MAP s.t: target table p.t lacks column lost",
        "r.prm:3: MAP s.t: KEYCOLS: target table p.t has no column nix; its columns are id, a, g, NAME, name2, nAme",
    ]
    assert "COLMAP names column a twice" in errors("COLMAP (a = id, A = id)", table("id"), target("id", "a"))[0]
    assert "no column of the target is written" in errors("COLS (a)", table("a", key=""), target("a:generated"))[0]


def test_the_message_of_several_errors_is_one_line_that_says_how_many_more_there_are():
    """START shows one line; CHECK PARAMS lists them."""
    with pytest.raises(MapErrors) as caught:
        plan("COLMAP (USEDEFAULTS, x = a, y = a)", table("id", "a"), target("id", "a"))
    assert caught.value.message.endswith("; and 1 more: CHECK PARAMS lists them")
    assert "\n" not in str(caught.value)


# --- the key ----------------------------------------------------------------------------------------------------------


def test_keycols():
    """They take the place of the source's key; from outside of it, before images are needed."""
    source, to = table("id", "no", "a"), target("id", "no", "a", unique=["id", "no"])
    made = plan("KEYCOLS (id)", source, to)
    assert (made.layout.key, made.key, made.mapping) == (("id",), (0,), None)
    made = plan("KEYCOLS (NO)", source, to)
    assert (made.layout.key, made.key, made.layout.arbiter) == (("no",), (1,), True)
    assert made.mapping is not None
    assert made.mapping.needs_before
    keyless = plan("KEYCOLS (a)", table("a", "b", key=""), target("a", "b", unique=[]))
    assert (keyless.layout.key, keyless.layout.arbiter) == (("a",), False)
    assert "column a of p.t is not mapped" in errors("KEYCOLS (a), COLS (id)", source, to)[0]
    assert "KEYCOLS names a column twice" in errors("KEYCOLS (no, NO)", source, to)[0]
    assert "does not come from the row alone: it reads csn" in errors(
        "COLMAP (USEDEFAULTS, a = change.csn), KEYCOLS (a)", source, to
    )[0]  # fmt: skip


def test_the_key_follows_a_renamed_or_computed_column():
    """An expression over nothing but the key is as good as the key."""
    made = plan("COLMAP (no = id, id = a)", table("id", "a"), target("id", "no", unique=["no"]))
    assert made.layout.key == ("no",)
    made = plan("COLMAP (USEDEFAULTS, id = id || '-EU')", table("id", "a"), target("id", "a"))
    assert (made.layout.key, made.key) == (("id",), (0,))
    assert made.mapping is not None
    assert not made.mapping.needs_before
    lost = errors("COLMAP (USEDEFAULTS, id = id || a)", table("id", "a"), target("id", "a"))
    assert "key column id of the source is not mapped to any column of p.t" in lost[0]


def test_a_unique_index_widens_the_key_by_what_is_fixed_for_a_row():
    """Two regions share a table: an update of one must never touch the other's row."""
    made = plan(
        "COLMAP (USEDEFAULTS, region = 'EU')", table("id", "a"), target("region", "id", "a", unique=["id,region"])
    )
    assert (set(made.layout.key), made.layout.arbiter) == ({"id", "region"}, True)
    by_row = plan("", table("id", "a"), target("id", "a", unique=["a,id"]))
    assert (by_row.layout.key, by_row.layout.arbiter) == (("id",), False)


def test_key_equality_is_the_targets():
    """CITEXT and its like."""
    assert plan("", table("id", "a"), target("id:soft", "a")).layout.soft_key
    assert not plan("", table("id", "a"), target("id", "a:soft")).layout.soft_key


# --- switches, exceptions, conflicts ----------------------------------------------------------------------------------


def test_switches_reach_the_plan():
    """Conversions need a program, collisions and weight stand in the layout."""
    source, to = table("id", "a"), target("id", "a")
    history = plan("INSERTALLRECORDS", source, to)
    assert (history.key, history.layout.key) == ((), ())
    assert history.mapping is not None
    assert history.mapping.insert_all
    made = plan("WEIGHT 3", source, to, before="INSERTDELETES\nINSERTMISSINGUPDATES\nUPDATEINSERTS\nHANDLECOLLISIONS\n")
    assert made.mapping is not None
    assert (made.mapping.insert_deletes, made.mapping.update_inserts, made.mapping.insert_updates) == (
        True,
        True,
        False,
    )
    assert (made.layout.collisions, made.layout.insert_missing, made.layout.weight) == (True, True, 3)
    assert plan("HANDLECOLLISIONS", source, to).mapping is None
    with pytest.raises(MapErrors, match="UPDATEDELETES needs a key"):
        plan("", table("a", key=""), target("a", unique=[]), before="UPDATEDELETES\n")


def test_exceptions_are_appended():
    """Every change a row; columns that the exceptions table lacks do not matter, and `lasterr` is known."""
    (rule,) = read(
        "MAP s.t, TARGET p.t, REPERROR (DEFAULT, EXCEPTION), MAPEXCEPTION (TARGET p.e, COLMAP (USEDEFAULTS, "
        "message = lasterr.dberrmsg));"
    ).maps
    own = exception_rule(rule)
    assert own is not None
    errors_of = plan_table(own, table("id", "a"), target("id", "message", name="e"), sql=Words())
    assert (errors_of.target, errors_of.layout.columns, errors_of.layout.key) == ("p.e", ("id", "message"), ())
    assert errors_of.mapping is not None
    assert errors_of.mapping.insert_all
    assert errors_of.mapping.slots[1] == Slot("fact", name="lasterr.dberrmsg")
    made = plan_table(rule, table("id", "a"), target("id", "a"), exceptions=(errors_of,))
    assert (made.exceptions, made.error_rules, made.mapping) == ((errors_of,), rule.error_rules, None)
    assert exception_rule(MapRule(rule.source, rule.target, rule.where)) is None


def test_conflicts_are_resolved_to_the_layout():
    """Columns as the target spells them; ALL leaves the key out, which finds the row anyway."""
    source, to = table("id", "Sum:decimal", "note", "at"), target("id", "Sum", "note", "at")
    made = plan(
        "COMPARECOLS (ON UPDATE ALLEXCLUDING (NOTE), ON DELETE KEYINCLUDING (at, id)),\n"
        "RESOLVECONFLICT (UPDATEROWEXISTS, (d, USEDELTA, COLS (sum)), (DEFAULT, USEMAX (AT)))",
        source,
        to,
    )
    assert isinstance(made.conflict, Conflict)
    assert (made.conflict.update, made.conflict.delete) == ((1, 3), (3,))
    (rule,) = made.conflict.rules
    assert (rule.groups[0].cols, rule.default.column) == (("Sum",), "at")
    assert plan("COMPARECOLS (ON UPDATE KEY)", source, to).conflict == Conflict()
    assert plan("", source, to).conflict is None
    option = (
        "RESOLVECONFLICT (UPDATEROWEXISTS, (d, USEDELTA, COLS (note)), (e, IGNORE, COLS (Note)), (DEFAULT, IGNORE))"
    )
    found = errors(option, source, to)
    assert "USEDELTA adds numbers, and column note is text" in found[0]
    assert "column note is in two groups" in found[1]
    assert "has no column x" in errors("COMPARECOLS (ON UPDATE KEYINCLUDING (x))", source, to)[0]
    assert "need a key" in errors("COMPARECOLS (ON UPDATE ALL)", table("a", key=""), target("a", unique=[]))[0]


def test_names_are_checked_where_the_source_is_not_known_yet():
    """A MAP without wildcards whose table the trail has not told of."""
    (rule,) = read("MAP s.t, TARGET p.t,\nCOLMAP (USEDEFAULTS, nope = a, A = b),\nKEYCOLS (no);").maps
    found = [str(error).split(";")[0] for error in check_names(rule, "s.t", target("id", "a"))]
    assert found == [
        "r.prm:4: MAP s.t: COLMAP: target table p.t has no column nope",
        "r.prm:3: MAP s.t: KEYCOLS: target table p.t has no column no",
    ]
