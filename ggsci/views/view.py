"""Text layouts: facts in, lines out. Nothing here reads a file or a clock.

Labels, columns and order are GoldenGate's, so that an eye or a script used to its output finds its way.
What is not known is said (`UNKNOWN`, `Not Available`), never filled with a zero.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from ggsci.facts import GroupFacts, TrailFacts
from ggsci.views.heartbeatview import info_lines
from trails.checkpoint import Checkpoint, Place, ReadCheckpoint, WriteCheckpoint
from trails.runtime.home.registration import SOURCEISTABLE
from trails.runtime.report.answers import LagAnswer

_LABEL = 21

Fields = list[tuple[str, object]]
"""Labels and facts, in the order in which they are shown."""


def stamp(time_us: int | None, *, micros: bool = False, missing: str = "Not Available") -> str:
    """Local time as `2021-03-11 10:30:18`, with six more digits if asked for."""
    if time_us is None:
        return missing
    text = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time_us // 1_000_000))
    return f"{text}.{time_us % 1_000_000:06d}" if micros else text


def minutes(time_us: int | None) -> str:
    """Local time down to the minute."""
    return stamp(time_us)[:-3] if time_us is not None else "Not Available"


def span(length_us: int | None) -> str:
    """`hh:mm:ss`; hours may have more digits. UNKNOWN if not known, or if two clocks disagree (negative)."""
    if length_us is None or length_us < 0:
        return "UNKNOWN"
    seconds = length_us // 1_000_000
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


# --- INFO ALL ---------------------------------------------------------------------------------------------------------


def info_all(manager: str, groups: Iterable[GroupFacts]) -> list[str]:
    """The table of INFO ALL: Program 12, Status 12, Group 12, Lag 14, Time 12 wide."""
    lines = ["", "Program     Status      Group       Lag at Chkpt  Time Since Chkpt", ""]
    lines.append(f"{'MANAGER':12}{manager:12}".ljust(62))
    rows = list(groups)
    for group in rows:
        since = span(group.since_us)
        lines.append(f"{group.program:12}{group.status:12}{group.name:12}{span(group.lag_us):14}{since:12}")
    return [*lines, "", *_doubts(rows), *_amiss(rows)]


def _doubts(groups: Iterable[GroupFacts]) -> list[str]:
    """Below the table: why a group that runs is not seen to work."""
    of = [group for group in groups if group.doubt and group.lag_us is None and group.status == "RUNNING"]
    lines = [f"Lag of {group.program} {group.name} is UNKNOWN: {doubt_text(group)}." for group in of]
    return [*lines, ""] if lines else []


def _amiss(groups: Iterable[GroupFacts]) -> list[str]:
    """Below the table: a group without an error may leave tables behind."""
    lines = [f"{group.program} {group.name}: {group.amiss}. INFO TABLES says why." for group in groups if group.amiss]
    return [*lines, ""] if lines else []


# --- INFO EXTRACT, INFO REPLICAT --------------------------------------------------------------------------------------


def info(group: GroupFacts) -> list[str]:
    """The basic block of a group."""
    lines = ["", _headline(group), *_optional_lines(group), *_read_lines(group)]
    return [*lines, f"{'Task':{_LABEL}}{group.registration.source}"] if group.registration.is_task else lines


def _headline(group: GroupFacts) -> str:
    if group.started_us is None:
        ran = f"Initialized   {minutes(group.registration.added_us)}"
    else:
        ran = f"Last Started {minutes(group.started_us)}"
    return f"{group.program:11}{group.name:10}{ran}   Status {group.status}"


def _optional_lines(group: GroupFacts) -> list[str]:
    lines = []
    if group.registration.desc:
        lines.append(f"{'Description':{_LABEL}}{group.registration.desc}")
    if not group.registration.is_task:
        lines.append(f"{'Checkpoint Lag':{_LABEL}}{_lag_text(group)}")
    lines += info_lines(group.heartbeats, _LABEL)
    if group.pid is not None and group.status in ("RUNNING", "STARTING"):
        lines.append(f"{'Process ID':{_LABEL}}{group.pid}")
    if group.waiting:
        lines.append(f"{'Waits':{_LABEL}}{group.waiting}")
    if group.amiss:
        lines.append(f"{'Tables':{_LABEL}}{group.amiss} (INFO TABLES says why)")
    if group.stands_still:
        lines.append(f"{'Main Loop':{_LABEL}}stands still for {span(group.turn_age_us)}: at one long step, or it hangs")
    if group.status == "ABENDED" and group.message and group.message not in group.waiting:
        lines.append(f"{'Last Error':{_LABEL}}{group.message}")
    return lines


def _lag_text(group: GroupFacts) -> str:
    if group.damage:
        return f"UNKNOWN ({group.damage})"
    if group.since_us is None:
        return "UNKNOWN (no checkpoint yet)"
    why = f"; {doubt_text(group)}" if group.doubt is not None and group.lag_us is None else ""
    return f"{span(group.lag_us)} (updated {span(group.since_us)} ago{why})"


def doubt_text(group: GroupFacts) -> str:
    """Why the lag is not believed, and how old the last truth is."""
    if group.doubt is None:
        return ""
    age = group.doubt.age_us
    return group.doubt.why if age is None else f"{group.doubt.why}, last seen {span(age)} ago"


def _read_lines(group: GroupFacts) -> list[str]:
    if group.registration.source == SOURCEISTABLE:
        return _table_read(group)
    if not group.shown:
        source = f"File {_trail_file(group, 0)}" if group.registration.trail else "Not Available"
        return [f"{'Log Read Checkpoint':{_LABEL}}{source}", " " * _LABEL + "Not Available"]
    lines = []
    for read in group.shown[0].reads:
        lines += _trail_read(group, read) if group.registration.trail else _log_read(read)
    return lines


def _table_read(group: GroupFacts) -> list[str]:
    """How far a task has read, of its last run that said so; and the CSN of its snapshot."""
    task = group.checkpoint.extra.get("task") if group.checkpoint else None
    if group.checkpoint is None or not isinstance(task, dict):
        return [f"{'Log Read Checkpoint':{_LABEL}}Not Available"]
    whole, sending = task.get("whole"), task.get("sending")
    file = task.get("file") if whole else "this run has not told that it is whole"
    return [
        f"{'Log Read Checkpoint':{_LABEL}}{'All tables' if whole or sending else 'Table ' + str(task.get('table'))}",
        f"{'':{_LABEL}}{stamp(group.checkpoint.saved_us)}  Record {task.get('rows')}",
        f"{'':{_LABEL}}{task.get('label')} {task.get('csn')}",
        f"{'Extract File':{_LABEL}}{sending or file}",
    ]


def _trail_file(group: GroupFacts, seqno: int) -> str:
    return f"{group.registration.trail}{seqno:09d}"


def _trail_read(group: GroupFacts, read: ReadCheckpoint) -> list[str]:
    place = read.current
    when = f"{stamp(place.time_us, micros=True)}  " if place.time_us is not None else "First Record  "
    return [
        f"{'Log Read Checkpoint':{_LABEL}}File {_trail_file(group, place.seqno)}",
        f"{'':{_LABEL}}{when}RBA {place.rba}",
    ]


def _log_read(read: ReadCheckpoint) -> list[str]:
    place = read.current
    thread = f"Thread {place.thread}, " if place.thread else ""
    csn = f"{read.csn_label} {place.csn or 'Not Available'}"
    return [
        f"{'Log Read Checkpoint':{_LABEL}}{read.source}",
        f"{'':{_LABEL}}{stamp(place.time_us)}  {thread}Seqno {place.seqno}, RBA {place.rba}",
        f"{'':{_LABEL}}{csn}",
    ]


# --- SHOWCH -----------------------------------------------------------------------------------------------------------

_STARTUP = "Startup Checkpoint (starting position in the data source):"
_RECOVERY = "Recovery Checkpoint (position of oldest unprocessed transaction in the data source):"
_CURRENT = "Current Checkpoint (position of last record read in the data source):"
_WRITE = "Current Checkpoint (current write position):"


def showch(group: GroupFacts, count: int = 1, table: str = "") -> list[str]:
    """The checkpoints as GoldenGate lays them out; `count` asks for so many saves, newest first.

    `table`: the checkpoint table of a Replicat that has not told it itself yet.
    """
    lines = ["", "", "Current Checkpoint Detail:", ""]
    if not group.shown:
        return [*lines, f"  {group.damage or 'No checkpoint has been saved yet.'}", ""]
    for checkpoint in group.shown[:count]:
        for number, read in enumerate(checkpoint.reads, 1):
            lines += _read_block(group, number, read)
        for number, write in enumerate(checkpoint.writes, 1):
            lines += _write_block(number, write)
    for title, fields in _tail_blocks(group, group.shown[0], table):
        lines += [f"{title}:", *(f"  {label} = {value}" for label, value in fields), ""]
    return lines


def _read_block(group: GroupFacts, number: int, read: ReadCheckpoint) -> list[str]:
    lines = [f"Read Checkpoint #{number}", "", f"  {read.source}", ""]
    # A trail holds only whole transactions, so its readers show no recovery position; what one keeps for purging
    # (a Replicat's flushed place) is in the JSON form. A table that stays behind needs a place of its own.
    recovery = None if group.registration.trail and not group.amiss else read.recovery
    for title, place in ((_STARTUP, read.startup), (_RECOVERY, recovery), (_CURRENT, read.current)):
        if place is not None:
            lines += [f"  {title}", *(f"    {label}: {value}" for label, value in _place(group, read, place)), ""]
    return lines


def _place(group: GroupFacts, read: ReadCheckpoint, place: Place) -> Fields:
    fields: Fields = [
        ("Sequence #", place.seqno),
        ("RBA", place.rba),
        ("Timestamp", stamp(place.time_us, micros=True)),
    ]
    if group.registration.trail:
        return [*fields, ("Extract Trail", group.registration.trail), ("Seqno Length", 9)]
    if place.thread:
        fields.insert(0, ("Thread #", place.thread))
    fields.append((read.csn_label, place.csn or "Not Available"))
    if place.file:
        fields.append(("Redo File", place.file))
    return fields


def _write_block(number: int, write: WriteCheckpoint) -> list[str]:
    fields = (
        ("Sequence #", write.seqno),
        ("RBA", write.rba),
        ("Timestamp", stamp(write.time_us, micros=True)),
        ("Extract Trail", write.trail),
        ("Seqno Length", 9),
        ("Flip Seqno Length", "No"),
        ("Trail Type", write.type),
    )
    lines = [f"Write Checkpoint #{number}", "", "  GGS Log Trail", "", f"  {_WRITE}"]
    return [*lines, *(f"    {label}: {value}" for label, value in fields), ""]


def _tail_blocks(group: GroupFacts, checkpoint: Checkpoint, table: str) -> list[tuple[str, Fields]]:
    from_log, size = not group.registration.trail, group.checkpoint_bytes
    began_us = max(group.started_us or 0, checkpoint.started_us or 0)
    # A run that ended, or still works, before it saved anything: what the record says of its end is the run before's.
    unsaved = began_us > (checkpoint.started_us or 0) and group.status != "STOPPED"
    blocks: list[tuple[str, Fields]] = [
        ("Header", [
            ("Version", 2), ("Record Source", checkpoint.record_source),
            ("Type", _type(from_log, len(checkpoint.reads))),
            ("# Input Checkpoints", len(checkpoint.reads)), ("# Output Checkpoints", len(checkpoint.writes)),
        ]),
        ("File Information", [
            ("Block Size", size), ("Max Blocks", 10), ("Record Length", size // max(1, len(group.checkpoints))),
            ("Current Offset", 0),
        ]),
        ("Configuration", [
            ("Data Source", 3 if from_log else 0), ("Transaction Integrity", 1 if group.program == "EXTRACT" else -1),
            ("Task Type", 0),
        ]),
        ("Database Checkpoint", _database_block(group, checkpoint, table)),
        ("Status", [
            ("Start Time", stamp(began_us or checkpoint.saved_us)), ("Last Update Time", stamp(checkpoint.saved_us)),
            ("Stop Status", "A" if unsaved else checkpoint.stop_status), ("Last Result", 400 if began_us else 0),
        ]),
    ]  # fmt: skip
    return [(title, fields) for title, fields in blocks if fields]


def _type(from_log: bool, inputs: int) -> int:
    """GoldenGate's record kinds: 4 a log of one thread, 6 of several, 1 a trail."""
    if not from_log:
        return 1
    return 4 if inputs <= 1 else 6


def _database_block(group: GroupFacts, checkpoint: Checkpoint, table: str) -> Fields:
    """Of the row that the group has said it uses; before it ran there is none that is its own."""
    named = checkpoint.extra.get("checkpoint_table") or table or group.registration.checkpoint_table
    if not named:
        return []
    key = group.key_number
    return [
        ("Checkpoint table", named),
        ("Key", f"{key} (0x{key:x})"),
        ("Create Time", stamp(checkpoint.extra.get("row_created_us"))),
    ]


# --- DETAIL -----------------------------------------------------------------------------------------------------------


def detail(group: GroupFacts, files: Sequence[tuple[str, str]], current_dir: str) -> list[str]:
    """What DETAIL adds: trails written, the last runs, and the paths of the group's files."""
    lines = [""]
    if group.program == "EXTRACT":
        lines += ["  Target Extract Trails:", "", _TRAIL_TITLE, ""]
        lines += [_trail_row(trail) for trail in group.trails] + [""]
    lines += [f"  {'Extract Source':40}{'Begin':18}{'End':16}", "", *_runs(group), ""]
    if group.program == "REPLICAT":
        lines += ["Last Committed Transaction CSN value:", f"  {group.last_csn or '(no data)'}", ""]
    lines += [f"{'Current directory':{_LABEL}}{current_dir}", ""]
    return [*lines, *(f"{label:{_LABEL}}{path}" for label, path in files), ""]


_TRAIL_TITLE = f"  {'Trail Name':45}{'Seqno':>9}{'RBA':>11}{'Max MB':>11} Trail Type"


def _trail_row(trail: TrailFacts) -> str:
    seqno = trail.seqno if trail.seqno is not None else "UNKNOWN"
    rba = trail.rba if trail.rba is not None else "UNKNOWN"
    return f"  {trail.path:45}{seqno:>9}{rba:>11}{trail.megabytes:>11} {trail.type}"


def _runs(group: GroupFacts) -> list[str]:
    """One line a run, newest first: where it began to read, and how far it came; the last line is that of ADD."""
    lines = []
    for run in group.runs:
        name = group.registration.trail and _trail_file(group, run.end.seqno)
        begin = minutes(run.begin.time_us) if run.begin.time_us is not None else "* Initialized *"
        end = minutes(run.end.time_us) if run.end.time_us is not None else "First Record"
        lines.append(f"  {name or run.end.file or run.source:40}{begin:18}{end}")
    first = _trail_file(group, 0) if group.registration.trail else "Not Available"
    end = "First Record" if group.registration.trail else minutes(group.registration.added_us)
    return [*lines, f"  {first:40}{'* Initialized *':18}{end}"]


# --- trails, LAG ---------------------------------------------------------------------------------------


def exttrail(trail: TrailFacts) -> list[str]:
    """One trail of INFO EXTTRAIL: labels right-aligned before the colon."""
    fields = (
        ("Extract Trail", trail.path),
        ("Seqno Length", 9),
        ("Flip Seqno Length", "no"),
        ("Extract", trail.group),
        ("Seqno", trail.seqno if trail.seqno is not None else "UNKNOWN"),
        ("RBA", trail.rba if trail.rba is not None else "UNKNOWN"),
        ("File Size", f"{trail.megabytes}M"),
    )
    return ["", *(f"{label:>20}: {value}" for label, value in fields)]


def lag(answer: LagAnswer) -> list[str]:
    """The answer to LAG: an unknown lag is said, and idleness is said beside it."""
    if answer.lag_us is None or answer.lag_us < 0:
        why = f": {answer.lag_why}" if answer.lag_why else ""
        text = f"Last record lag UNKNOWN{why}."
    else:
        text = f"Last record lag {answer.lag_us // 1_000_000} seconds."
    return [text, *(["At EOF, no more records to process"] if answer.at_eof else [])]
