"""REPERROR, DISCARDFILE, and the text of a discard record."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Sequence

import pytest

from replicat.apply.discardfile import DiscardFile, Examined, framed
from replicat.apply.discardrecord import Reason, image_of, record, shown
from replicat.model.plan import TablePlan
from replicat.model.reperror import DiscardSetting, ErrorRule, rule_for
from replicat.model.target import Layout
from replicat.params import ReplicatParams
from replicat.work.decode import Spot
from replicat.work.net.part import MappedChange
from trails.errors import AnewError, LockedError, OperatorError, ParamError
from trails.fs import RealFs, read_bytes
from trails.position import Position
from trails.record import MISSING
from trails.runtime.home.home import Home
from trails.runtime.language.params import parse_text
from trails.testing import After, Crash, FaultFs

BEGIN, PLACE = Position(0, 0), Position(3, 4096)
GOOD = "REPLICAT rep1\nTARGETDB postgresql://u@h/d\n"
PATH = "/home/dirdsc/REP1.dsc"


def read(*lines: str) -> ReplicatParams:
    return ReplicatParams.from_statements(parse_text(GOOD + "\n".join([*lines, "MAP s.*, TARGET p.*;\n"]), "rep1.prm"))


def action_of(rules: Sequence[ErrorRule], *error: str) -> str:
    """The action that the rules give an error."""
    return rule_for(rules, *error).action


def text_of(
    index: int = 0, position: Position = PLACE, group: str = "REP1", mapped: tuple[MappedChange, ...] = ()
) -> list[str]:
    """A record's lines."""
    spot = Spot(
        position, "0000000000000007", index, "src.kv", "update", "5", "public.kv", ("id", "a\nb", "data"),
        ("5", None, b"\x00\xff"), ("5", 'line\n"two"', MISSING),
    )  # fmt: skip
    reason = Reason("DISCARD", "error 23514", "public.kv: new row\nviolates")
    return record(spot, reason, group, b"\xab" * 4, 1_700_000_000, mapped)


def places(fs: FaultFs) -> list[str]:
    """The place line of each whole record."""
    return [place.decode().rstrip() for place, *_ in Examined(fs.open(PATH))]


# --- parameters -----------------------------------------------------------------------------------------------------


def test_the_rule_for_exactly_this_code_counts_then_default_then_abend():
    """Order in the file decides only between equal codes: the last one before a MAP holds for it."""
    rules = read(
        "REPERROR (DEFAULT, DISCARD)", "REPERROR (23514, DISCARD)", "REPERROR (23514, ABEND)", "reperror (22p02, abend)"
    ).error_rules
    assert [action_of(rules, code) for code in ("23514", "22P02", "23505", "")] == ["ABEND", "ABEND"] + ["DISCARD"] * 2
    assert action_of(read("REPERROR (23514, DISCARD)").error_rules, "23505") == "ABEND"
    assert action_of(read().error_rules, "23514") == "ABEND"


def test_errors_go_by_the_databases_own_names_too():
    """1062 of MySQL, SQLITE_...; GoldenGate's 1403 is a row that is not there."""
    rules = read("REPERROR (1062, IGNORE)", "REPERROR (sqlite_constraint_check, DISCARD)", "REPERROR ('1403', IGNORE)")
    found = [("23000", "1062"), ("23000", "SQLITE_CONSTRAINT_CHECK"), ("02000", ""), ("23000", "1452")]
    assert [action_of(rules.error_rules, *each) for each in found] == ["IGNORE", "DISCARD", "IGNORE", "ABEND"]


def test_rules_written_for_oracle_load_and_mean_the_same():
    """-1 is a key that is there, -1403 a row that is not; parentheses may be missing; other numbers are refused."""
    rules = read(
        "REPERROR (-1, DISCARD)", "REPERROR (-1403, IGNORE)", "REPERROR -2291, DISCARD", "REPERROR DEFAULT, EXCEPTION"
    ).error_rules  # fmt: skip
    found = [action_of(rules, code) for code in ("23505", "02000", "23503", "23514")]
    assert found == ["DISCARD", "IGNORE", "DISCARD", "EXCEPTION"]
    with pytest.raises(ParamError, match=r"a SQLSTATE of five characters such as 23514, .*found '-54'"):
        read("REPERROR (-54, DISCARD)")


def test_all_actions_and_their_options():
    """Blanks or commas between; 3 tries a second apart if not given."""
    rules = read(
        "REPERROR (DEFAULT, EXCEPTION)", "REPERROR (DEFAULT2, TRANSDISCARD)", "REPERROR (40001, RETRYOP MAXRETRIES 5)",
        "REPERROR (40002, TRANSABORT, MAXRETRIES 2, DELAYSECS 7)", "REPERROR (40003, transabort, delaycsecs 25)",
        "REPERROR (40004, TRANSEXCEPTION)",
    ).error_rules  # fmt: skip
    assert rules == (
        ErrorRule("DEFAULT", "EXCEPTION"), ErrorRule("DEFAULT2", "TRANSDISCARD"),
        ErrorRule("40001", "RETRYOP", 5, 1000), ErrorRule("40002", "TRANSABORT", 2, 7000),
        ErrorRule("40003", "TRANSABORT", 3, 250), ErrorRule("40004", "TRANSEXCEPTION"),
    )  # fmt: skip


def test_default2_is_for_exceptions_without_a_table():
    """Whatever rule says EXCEPTION; without a DEFAULT2 it is ABEND."""
    rules = read("REPERROR (DEFAULT, EXCEPTION)", "REPERROR (DEFAULT2, DISCARD)", "REPERROR (1, TRANSEXCEPTION)")
    for code in ("23505", "1"):
        assert rule_for(rules.error_rules, code, exceptions=True).action.endswith("EXCEPTION")
        assert rule_for(rules.error_rules, code, exceptions=False).action == "DISCARD"
        assert rule_for(rules.error_rules[:1], "23505", exceptions=False).action == "ABEND"


def test_rules_hold_for_the_maps_behind_them():
    """RESET forgets all before it; a MAP's own come first."""
    text = GOOD + (
        "REPERROR (23505, DISCARD)\nMAP s.a, TARGET p.a;\nREPERROR (23505, IGNORE)\n"
        "MAP s.b, TARGET p.b, REPERROR (23514, DISCARD);\nREPERROR RESET\nMAP s.c, TARGET p.c;\n"
    )
    maps = ReplicatParams.from_statements(parse_text(text, "rep1.prm")).maps
    actions = [[action_of(rule.error_rules, code) for code in ("23505", "23514")] for rule in maps]
    assert actions == [["DISCARD", "ABEND"], ["IGNORE", "DISCARD"], ["ABEND", "ABEND"]]


def test_the_discard_file_is_the_groups_own_unless_named():
    """./dirdsc/<GROUP>.dsc, appended to, of 50 megabytes."""
    home = Home("/h")
    assert read().discard_path(home) == "/h/dirdsc/REP1.dsc"
    assert read().discard_file == DiscardSetting("", False, 50)
    named = read("DISCARDFILE ./dirrpt/x.dsc, PURGE, MEGABYTES 7")
    assert named.discard_path(home) == "/h/dirrpt/x.dsc"
    assert named.discard_file == DiscardSetting("dirrpt/x.dsc", True, 7)
    assert read("DISCARDFILE 'dirdsc/my file.dsc', MEGABYTES 9, APPEND").discard_file.path == "dirdsc/my file.dsc"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "REPERROR (23514, DISCARDS)",
            "REPERROR: expected one of ABEND, DISCARD, EXCEPTION, IGNORE, RETRYOP, TRANSABORT",
        ),
        ("REPERROR (23514, DISCARDS)", "TRANSDISCARD, TRANSEXCEPTION; did you mean DISCARD?, found 'DISCARDS'"),
        ("REPERROR (DEFALUT, DISCARD)", "REPERROR: expected DEFAULT, DEFAULT2, a SQLSTATE of five characters such as"),
        ("REPERROR (23514, DISCARD, 5)", "REPERROR: expected nothing behind DISCARD, found '5'"),
        (
            "REPERROR (40001, RETRYOP MAXRETRIES)",
            "REPERROR: expected a whole number up to 10000 behind MAXRETRIES, found",
        ),
        (
            "REPERROR (40001, RETRYOP, DELAYSECS 61)",
            "REPERROR: expected a whole number up to 60 behind DELAYSECS, found '61'",
        ),
        (
            "REPERROR (40001, RETRYOP 3)",
            "REPERROR: expected RETRYOP [MAXRETRIES n] [, DELAYSECS n | DELAYCSECS n], found",
        ),
        (
            "REPERROR (1, TRANSABORT, DELAYSECS 1, DELAYCSECS 1)",
            "REPERROR: expected TRANSABORT [MAXRETRIES n] [, DELAYSECS n | DELAYCSECS n], found 'DELAYCSECS'",
        ),
        (
            "REPERROR (23514), DISCARD",
            "REPERROR: expected (DEFAULT | DEFAULT2 | SQLSTATE | error number or name, action)",
        ),
        ("REPERROR ((23514), DISCARD)", "REPERROR: expected (DEFAULT | DEFAULT2 | SQLSTATE"),
        ("REPERROR", "REPERROR: expected (DEFAULT | DEFAULT2 | SQLSTATE"),
        ("DISCARDFILE", "DISCARDFILE: expected a file *.dsc"),
        ("DISCARDFILE /tmp/rep1.dsc", "DISCARDFILE: expected a file *.dsc in the home's ./dirdsc or ./dirrpt"),
        ("DISCARDFILE ./dirdsc/../../x.dsc", "DISCARDFILE: expected a file *.dsc"),
        ("DISCARDFILE ./dirdat/rt000000000", "DISCARDFILE: expected a file *.dsc"),
        ("DISCARDFILE ./dirrpt/REP1.rpt", "DISCARDFILE: expected a file *.dsc"),
        ("DISCARDFILE ./dirdsc/a.dsc, APPEND, PURGE", "DISCARDFILE: expected one of APPEND and PURGE"),
        ("DISCARDFILE ./dirdsc/a.dsc, MEGABYTES", "DISCARDFILE: expected a whole number from 1 to 2047"),
        ("DISCARDFILE ./dirdsc/a.dsc, MEGABYTES 0", "DISCARDFILE: expected a whole number from 1 to 2047"),
        ("DISCARDFILE ./dirdsc/a.dsc, OVERWRITE", "DISCARDFILE: expected file [, APPEND | PURGE] [, MEGABYTES n]"),
    ],
)
def test_mistakes(line: str, message: str):
    """File, line, expected, found; what GoldenGate knows and we don't is refused by its name."""
    with pytest.raises(ParamError) as caught:
        read(line)
    assert str(caught.value).startswith("rep1.prm:3: ")
    assert message in str(caught.value)


# --- records --------------------------------------------------------------------------------------------------------


def test_a_record_says_everything():
    """Time, action, the database's words and SQLSTATE, place, tables, operation, both images exactly; then a CRC."""
    data = framed(text_of(2))
    where = "CSN 0000000000000007, change 2 of its transaction, group REP1, trail abababab"
    lines = data.decode().splitlines()
    assert re.fullmatch(r"Current time: \d{4}-\d\d-\d\d \d\d:\d\d:\d\d", lines[0])
    assert lines[1:-1] == [
        "Discarding record on action DISCARD on error 23514",
        "public.kv: new row violates",
        f"Operation failed at seqno 3 rba 4096, {where}",
        "Discarding record...",
        "Problem replicating src.kv to public.kv",
        "Error occurred with update record (source format)...",
        "Before image:", "*", 'id = "5"', '"a\\nb" = NULL', "data = \\x00ff", "*",
        "After image:", "*", 'id = "5"', '"a\\nb" = "line\\n\\"two\\""', "data = (not in the trail)", "*",
    ]  # fmt: skip
    body = data[: data.rindex(b"Record ends")]
    assert lines[-1] == f"Record ends, CRC32 {zlib.crc32(body):08x}"


def test_a_record_holds_the_row_of_its_target():
    """What REPLAY DISCARDS needs, in one line of JSON, exactly: bytes, NULL, missing, and text that is no UTF-8."""
    layout = Layout("public", "k v", ("id", "x"), ("int", "bytea"), ("id",), logical=("integer", "bytes"))
    row = ("5", b"\x00\xff"), ("a\udcff\n", MISSING)
    mapped = MappedChange(TablePlan("s.t", "p.t", layout, (0,)), "update", *row)
    line = framed(text_of(0, mapped=(mapped,))).splitlines()[-2].decode("ascii")
    known = json.loads(line.removeprefix("Target record: "))
    assert (known["table"], known["op"], known["key"], known["columns"]) == (
        ["public", "k v"], "update", ["id"], ["id", "x"],
    )  # fmt: skip
    assert (image_of(known["before"]), image_of(known["after"]), image_of(None)) == (*row, None)


def test_where_several_maps_take_a_change_each_has_its_record():
    """The place names the target too."""
    spot = Spot(PLACE, "07", 0, "s.t", "delete", "5", 'p."t"', ("id",), ("5",), shared=True)
    lines = record(spot, Reason("DISCARD", "error 23514", "no"), "REP1", b"\xab", 1)
    assert lines[3].endswith(', trail ab, to "p.\\"t\\""')


def test_text_that_is_not_utf8_stays_readable():
    """A stray byte of a SQL_ASCII source is an escape in the JSON string."""
    assert framed([shown("a\udcff")]).splitlines()[0] == b'"a\\udcff"'


# --- the file -------------------------------------------------------------------------------------------------------


@pytest.fixture
def fs() -> FaultFs:
    return FaultFs()


def opened(fs: FaultFs, position: Position = BEGIN, *, purge: bool = False, megabytes: int = 50) -> DiscardFile:
    """As a process does at its start."""
    file = DiscardFile(fs, PATH, megabytes, purge=purge, title="A discard file")
    file.look(position)
    return file


def written(fs: FaultFs, *records: list[str], position: Position = BEGIN, purge: bool = False) -> None:
    """One process's life: these records, synced."""
    file = opened(fs, position, purge=purge)
    for lines in records:
        file.add(lines)
    file.sync()
    file.close()


def test_a_record_is_written_once(fs: FaultFs):
    """Position, CSN, index and group name a change; a different one of these is another change."""
    written(fs, text_of(0), text_of(0), text_of(1))
    written(fs, text_of(0), text_of(1), text_of(2), text_of(0, group="REP2"))
    assert [re.search(r"change (\d).*group (\w+)", place).groups() for place in places(fs)] == [  # type: ignore[union-attr]
        ("0", "REP1"), ("1", "REP1"), ("2", "REP1"), ("0", "REP2"),
    ]  # fmt: skip
    assert fs.content(PATH).startswith(b"A discard file\n\nCurrent time: ")


def test_a_change_before_the_row_will_not_come_again(fs: FaultFs):
    """After an ALTER to an earlier place it may: then it is known again."""
    written(fs, text_of(0))
    written(fs, text_of(0), position=Position(4, 0))
    assert len(places(fs)) == 2
    written(fs, text_of(0), position=Position(3, 0))
    assert len(places(fs)) == 2


@pytest.mark.parametrize("how", After)
def test_a_torn_record_is_cut_off_and_nothing_else(fs: FaultFs, how: After):
    """What a person wrote between records, and a record with a changed value, stay as they are."""
    written(fs, text_of(0), text_of(1))
    fs.corrupt(PATH, lambda data: data.extend(b"-- seen by the night shift, no line end"))
    fs.corrupt(PATH, lambda data: data.__setitem__(slice(None), data.replace(b'id = "5"', b'id = "6"', 1)))
    kept = fs.content(PATH)
    file = opened(fs)
    file.add(text_of(2))
    fs.reboot(how)
    written(fs, text_of(2))
    assert fs.content(PATH).startswith(kept + b"\nCurrent time: ")
    assert [place for place in places(fs) if "change 2 of" in place] == [places(fs)[-1]]
    assert fs.content(PATH).count(b"Current time: ") == 3


def test_what_a_failed_sync_left_in_memory_is_written_again(fs: FaultFs):
    """After it the pages look clean: a later sync alone would make nothing durable."""
    file = opened(fs)
    file.add(text_of(0))
    fs.fail = lambda operation, path: fail(operation == "datasync" and path == PATH)
    with pytest.raises(OperatorError, match="does not take a record, so nothing of the batch was committed: EIO"):
        file.sync()
    file.close()
    fs.fail = lambda *_: None
    written(fs, text_of(0))
    fs.reboot(After.POWER)
    assert len(places(fs)) == 1


def fail(wanted: bool) -> None:
    if wanted:
        raise OperatorError("EIO", hint="Check the disk")


def test_a_full_disk_leaves_no_half_record(fs: FaultFs):
    """CW-28: the error says what was not done; what was written of the record is taken back."""
    written(fs, text_of(0))
    before = fs.content(PATH)
    file = opened(fs)
    fs.fail = lambda operation, _path: fail(operation == "write")
    with pytest.raises(OperatorError, match=r"nothing of the batch was committed: EIO\. Check the disk"):
        file.add(text_of(1))
    assert fs.content(PATH) == before


def test_a_file_at_its_bound_ends_the_process(fs: FaultFs):
    """MEGABYTES: one clear message, the record is not begun."""
    written(fs, text_of(0))
    fs.corrupt(PATH, lambda data: data.extend(b"x" * (1 << 20) + b"\n"))
    size = len(fs.content(PATH))
    with pytest.raises(
        OperatorError, match=r"REP1\.dsc: the discard file would exceed its MEGABYTES 1; .*Move the file"
    ):
        opened(fs, megabytes=1).add(text_of(1))
    assert len(fs.content(PATH)) == size


def test_purge_begins_a_new_file_and_keeps_ten(fs: FaultFs):
    """Only what was committed gives a file another name: a group that is started again and again loses no record."""
    for number in range(15):
        written(fs, text_of(number, Position(number, 0)), position=Position(number, 0), purge=True)
    opened(fs, Position(14, 0), purge=True).close()
    assert len(places(fs)) == 1
    names = sorted(name for name in fs.listdir("/home/dirdsc") if name.startswith("REP1"))
    assert names == sorted(["REP1.dsc", *(f"REP1.{n}.dsc" for n in range(10))])
    assert b"change 13 of" in fs.content("/home/dirdsc/REP1.0.dsc")
    assert b"change 4 of" in fs.content("/home/dirdsc/REP1.9.dsc")


def aged_names(fs: FaultFs) -> list[str]:
    """The discard files there are."""
    return sorted(name for name in fs.listdir("/home/dirdsc") if name.startswith("REP1"))


def test_a_rollover_waits_until_all_that_is_in_the_file_is_committed(fs: FaultFs):
    """DISCARDROLLOVER: a record whose change may come again must be found in the file, or it is written twice."""
    file = opened(fs)
    assert file.roll()  # nothing there: nothing to do
    file.add(text_of(0))
    assert not file.roll()
    file.sync()
    assert not file.roll()
    file.committed(Position(PLACE.seqno, PLACE.rba + 1))
    assert file.roll()
    assert aged_names(fs) == ["REP1.0.dsc"]
    file.add(text_of(1, Position(5, 0)))
    file.sync()
    assert aged_names(fs) == ["REP1.0.dsc", "REP1.dsc"]
    assert [place for place in places(fs) if "change 0 of" in place] == []


@pytest.mark.parametrize("how", After)
def test_a_crash_at_any_call_of_a_rollover_loses_no_record(how: After):
    """Every record is in one file; the next rollover takes no file's place."""
    for crash_at in range(1, 60):
        fs = FaultFs()
        for number in range(3):
            written(fs, text_of(number, Position(number, 0)), position=Position(number, 0), purge=True)
        file = opened(fs, Position(9, 0))
        fs.crash_at = fs.calls + crash_at
        try:
            file.roll()
        except Crash:
            fs.reboot(how)
        else:
            break
        finally:
            fs.crash_at = None
        written(fs, text_of(3, Position(9, 0)), position=Position(9, 0))
        file = opened(fs, Position(10, 0))
        file.roll()
        contents = b"".join(fs.content(f"/home/dirdsc/{name}") for name in aged_names(fs))
        assert [contents.count(f"change {n} of".encode()) for n in range(4)] == [1] * 4, crash_at
    assert crash_at > 3


def test_a_file_that_is_moved_away_is_made_anew(fs: FaultFs):
    """It is opened by name for each batch."""
    file = opened(fs)
    file.add(text_of(0))
    file.sync()
    fs.rename(PATH, "/home/dirdsc/done")
    file.add(text_of(0))
    file.sync()
    assert len(places(fs)) == 1


@pytest.mark.parametrize("other", [None, b"somebody else's"])
def test_a_file_deleted_while_records_are_written_commits_nothing(fs: FaultFs, other: bytes | None) -> None:
    """I8: what was synced is under no name, so the batch is not committed; its records are written again."""
    file = DiscardFile(fs, PATH, 50)
    file.look(BEGIN)
    file.add(text_of(0))
    fs.take_away(PATH, by=other)
    with pytest.raises(AnewError, match=r"nothing of the batch was committed: .*REP1\.dsc was removed or replaced"):
        file.sync()
    file.add(text_of(0))
    file.sync()
    assert len(places(fs)) == 1
    file.close()


def test_two_groups_never_write_one_file_at_once(tmp_path):
    """The second START is refused while the first group runs."""
    path = str(tmp_path / "shared.dsc")
    first = DiscardFile(RealFs(), path, 1)
    with pytest.raises(LockedError, match=r"\.shared\.dsc\.lock: held by process"):
        DiscardFile(RealFs(), path, 1)
    first.look(Position(0, 0))
    first.add(text_of())
    first.sync()
    first.close()
    second = DiscardFile(RealFs(), path, 1)
    second.close()
    assert read_bytes(RealFs(), path).endswith(b"\n")
