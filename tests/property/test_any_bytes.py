"""Any bytes in whatever is read from a file or a peer: a value or one named error; bounded in memory and time.

Trail blocks, wire sessions, pgoutput and DDL changes have their own files beside this one. Long inputs have no clock on
them: a parser whose time grows faster than its input meets the test's time limit.
"""

from __future__ import annotations

import io
import json
import socket
import struct
import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from demo.patience import PATIENCE
from extract.params import KEYWORDS as EXTRACT
from extract.params import ExtractParams
from ggsci.manager.params import KEYWORDS as MANAGER
from ggsci.manager.params import ManagerParams
from pump.link import parse_reply
from pump.params import KEYWORDS as PUMP
from pump.params import PumpParams
from tests.support.hostile import hostile
from trails import checkpoint
from trails.checkpoint import Checkpoint, Place, ReadCheckpoint
from trails.errors import AwayError, DamageError, GateError, OperatorError, ParamError, ProtocolError, VersionError
from trails.runtime.home import registration, status
from trails.runtime.home.home import Home
from trails.runtime.language import params, prmtext
from trails.runtime.language.globals import GLOBALS_KEYWORDS
from trails.runtime.process import control
from trails.runtime.process.control import ControlServer

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
DEEP = b"[" * 100_000
NUMBERS = b"9" * 100_000


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """An empty home."""
    made = Home(str(tmp_path / "home"))
    made.create_subdirs()
    return made


# --- parameter files ---

WORDS = st.sampled_from(
    [
        *sorted({*EXTRACT, *PUMP, *MANAGER, *GLOBALS_KEYWORDS, *params.LANGUAGE, *params.ALWAYS}), "#m", "#m ()",
        "PARAMS", "BEGIN", "END;", "(#a)", "#a", "?HOME", "?NOPE", "./dirprm/x.prm", "ER", "*", "s.*", "(", ")", ",",
        ";", "&", "--", "'", '"', "'x'", "=", "5", "99999999999999999999", "-1", "\n", "\n", "\x00", "é", "\u2028",
        "postgresql://u:p@h/d", "NOTLS", "USERIDALIAS", "10.0.0.0/8", "7840-7850", "10%", "\r", "\t",
    ]
)  # fmt: skip
TEXTS = st.one_of(
    st.lists(WORDS, max_size=40).map(" ".join), st.lists(WORDS, max_size=40).map("\n".join), st.text(max_size=200)
)
CHECKS: dict[str, Callable[[list[params.Statement]], Any]] = {
    "extract": ExtractParams.from_statements,
    "pump": lambda statements: PumpParams.from_statements(statements, "x.prm"),
    "manager": lambda statements: ManagerParams.from_statements(statements, "x.prm"),
    "GLOBALS": lambda statements: params.check(statements, GLOBALS_KEYWORDS, "GLOBALS", file="x.prm"),
}


@hostile()
@given(st.sampled_from(sorted(CHECKS)), TEXTS)
@example("pump", "MACRO #m BEGIN #m END;\n#m")
@example("extract", "TABLE (((((\n;")
def test_any_text_is_a_checked_file_or_mistakes_with_their_lines(program: str, text: str) -> None:
    """Of every program; OBEY and INCLUDE find no file here."""
    try:
        CHECKS[program](params.parse_text(text, "x.prm", {"HOME": "h"}))
    except ParamError as error:
        assert str(error)  # noqa: PT017  -- the error is only one of two right outcomes


@hostile(30)
@given(st.binary(max_size=300))
def test_any_parameter_file_is_statements_or_one_error(tmp_path: Path, data: bytes) -> None:
    """Bytes that are no UTF-8 are told with their line."""
    path = tmp_path / "x.prm"
    path.write_bytes(data)
    try:
        params.parse_file(str(path), {})
    except ParamError as error:
        assert str(path) in str(error)  # noqa: PT017  -- the error is only one of two right outcomes


@pytest.mark.parametrize(
    "text",
    [
        "TABLE (\n" * 30_000, "TABLE (\n" * 30_000 + ";", "(" * 400_000, "'" * 400_001, " " * 400_000 + "x",
        "a.b," * 100_000,
        "RMTHOST a, &\n" * 30_000, "SETENV (" + " " * 400_000, "#m (" * 50_000, "MACRO #m\n" * 30_000,
        "MACRO #m BEGIN " + " " * 400_000, "?a" * 100_000, "-- " * 100_000, "\n" * 90_000, "MAP a.b\n" * 30_000 + ";",
        "X http://" + "/" * 400_000, "END ;" * 50_000, '"' * 400_001, "&\n" * 30_000,
        ("#m (" + "a" * 4000 + "\n") * 1000, "MACRO #m PARAMS (#a) BEGIN #a END;\n" + "#m (\n(\n" * 40_000,
        "MACRO #m BEGIN END;\n" + "#m () " * 100_000,
    ],
    ids=range(22),
)  # fmt: skip
def test_a_long_parameter_file_takes_time_by_its_length_only(text: str) -> None:
    """What would take hours if any step of the reading were quadratic."""
    statements = params.parse_text(text, "x.prm", {})
    assert len(statements) <= prmtext.MAX_LINES + 1


# --- files of a home ---


def read_checkpoint(home: Home, data: bytes) -> None:
    """dirchk/EXT1.cpe."""
    path = Path(home.checkpoint("EXT1", "EXTRACT"))
    path.write_bytes(data)
    checkpoint.load(home.fs, str(path))


def read_registration(home: Home, data: bytes) -> None:
    """dirpcs/EXT1.json."""
    Path(home.registration("EXT1")).write_bytes(data)
    registration.load(home, "EXT1")


def read_status(home: Home, data: bytes) -> None:
    """dirpcs/EXT1.pce."""
    path = home.status("EXT1", "EXTRACT")
    Path(path).write_bytes(data)
    status.read(home.fs, path)


READERS = (read_checkpoint, read_registration, read_status)


@pytest.mark.parametrize("read", READERS)
@hostile()
@given(data=st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value).encode()))
@example(data=DEEP)
@example(data=NUMBERS)
@example(data=b'{"version": 1}')
def test_any_file_of_the_home_is_a_value_or_named_damage(home: Home, read: Any, data: bytes) -> None:
    """Nothing but DamageError and VersionError, and they name the file."""
    try:
        read(home, data)
    except (DamageError, VersionError) as error:
        assert home.root in str(error)  # noqa: PT017  -- the error is only one of two right outcomes


def valid_checkpoint() -> bytes:
    """The bytes of a small history."""
    place = Place(1, 2, 3)
    return checkpoint.make([Checkpoint("EXT1", "EXTRACT", (ReadCheckpoint("TRAIL", place, place),), ())])


@hostile()
@given(st.integers(0, len(valid_checkpoint()) - 1), st.integers(1, 255), st.booleans())
def test_a_checkpoint_with_one_wrong_byte_is_damage(at: int, bits: int, cut: bool) -> None:
    """Or of another version, where that byte says so."""
    data = bytearray(valid_checkpoint())
    data[at] ^= bits
    with pytest.raises((DamageError, VersionError)):
        checkpoint.parse(bytes(data[:at] if cut else data), "x")


@hostile()
@given(st.binary(max_size=120))
def test_a_checkpoint_whose_crc_holds_and_whose_body_is_anything(body: bytes) -> None:
    """Whoever made the CRC, what stands in it is still checked."""
    head = struct.pack(">8sHHI", checkpoint.MAGIC, checkpoint.VERSION, 0, len(body))
    data = head + struct.pack(">I", zlib.crc32(body, zlib.crc32(head))) + body
    try:
        checkpoint.parse(data, "x")
    except DamageError as error:
        assert str(error).startswith("x")  # noqa: PT017  -- the error is only one of two right outcomes


# --- sockets ---


@hostile()
@given(st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value).encode()))
@example(DEEP)
@example(NUMBERS)
@example(b'{"ok": true, "port": 1e999}')
@example(b'{"ok": true, "port": true}')
def test_any_answer_of_a_manager_is_a_port_or_a_named_error(line: bytes) -> None:
    """As the pump reads it."""
    try:
        assert 0 < parse_reply(line, "Manager") < 65536
    except (AwayError, OperatorError, ProtocolError) as error:
        assert "Manager" in str(error)  # noqa: PT017  -- the error is only one of two right outcomes


def conversation(home: Home, data: bytes) -> bytes:
    """What a control socket answers to these bytes, until it closes or waits for more."""
    server = ControlServer(home, "EXT1", lambda verb, args: {"verb": verb, "args": len(args)})
    try:
        with socket.socket(socket.AF_UNIX) as link:
            with control._short_path(home.control("EXT1")) as short:
                link.connect(short)
            link.setblocking(False)
            return _talk(server, link, memoryview(data))
    finally:
        server.close()


def _talk(server: ControlServer, link: socket.socket, left: memoryview) -> bytes:
    said, idle = b"", 0
    while idle < 3:
        idle += 1
        try:
            if left:
                left = left[link.send(left, socket.MSG_NOSIGNAL) :]
                idle = 0
        except BlockingIOError:
            pass
        except OSError:
            left = left[:0]
        server.handle([fd for fd, _ in server.interest()], 0.0)
        try:
            data = link.recv(1 << 16)
        except BlockingIOError:
            continue
        except OSError:
            break
        if not data:
            break
        said += data
        idle = 0
    return said


@hostile(80)
@given(data=st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value).encode() + b"\n"))
@example(data=DEEP[:60_000] + b"\n")
@example(data=b'{"verb": "\\ud800"}\n')
@example(data=b'{"verb": ["x"]}\n' * 50)
@example(data=b"x" * 500_000)
def test_a_control_socket_answers_any_bytes_by_lines_of_json(home: Home, data: bytes) -> None:
    """And no request costs more memory than its bound."""
    said = conversation(home, data)
    assert len(said) < 1 << 16
    for line in said.splitlines():
        assert isinstance(json.loads(line)["ok"], bool)


@hostile(25)
@given(data=st.binary(max_size=100) | JSON.map(lambda value: json.dumps(value).encode() + b"\n"))
@example(data=DEEP + b"\n")
@example(data=NUMBERS + b"\n")
def test_whoever_asks_a_control_socket_survives_any_answer(home: Home, data: bytes) -> None:
    """A reply, or AwayError."""
    with socket.socket(socket.AF_UNIX) as listener:
        path = Path(home.control("EXT1"))
        path.unlink(missing_ok=True)
        with control._short_path(str(path)) as short:
            listener.bind(short)
        listener.listen()

        def serve() -> None:
            link, _ = listener.accept()
            with link:
                link.recv(1000)
                try:
                    link.sendall(data)
                except OSError:
                    return

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            assert isinstance(control.ask(home, "EXT1", "STATUS", timeout=PATIENCE), dict)
        except GateError as error:
            assert "EXT1" in str(error)  # noqa: PT017  -- the error is only one of two right outcomes
        finally:
            thread.join()


# --- what a person types ---


@hostile()
@given(st.text(max_size=120))
def test_any_line_at_the_prompt_is_a_command_or_an_error_line(home: Home, line: str) -> None:
    """ggsci goes on whatever was typed. (What would start an editor or a shell is left out.)"""
    from ggsci.commands.session import OperatorSession

    if line.strip().upper().startswith(("SH", "!", "EDIT", "ED", "FC", "SET")):
        return
    session = OperatorSession(home.root)
    session.out = session.err = io.StringIO()
    assert isinstance(session.run(line), bool)
