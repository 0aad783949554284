"""The peers: what PostgreSQL itself and the bare operating system do of the same work, on the same bed."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

from benchmarks.bed import PUBLICATION, TARGET_DB, Bed

SLOT = "bench_peer"
SUBSCRIPTION = "bench_peer"


@dataclass(frozen=True, slots=True)
class Captured:
    """What a reader of the log took and left."""

    seconds: float
    cpu: float
    size: int


def recvlogical(bed: Bed, *, tcp: bool) -> Captured:
    """pg_recvlogical writes the backlog to a file, synced each second, up to the backlog's end."""
    bed.copy_slot(SLOT)
    with tempfile.NamedTemporaryFile(prefix="tg-bench-") as file:
        command = [str(bed.source.bindir / "pg_recvlogical"), "-d", bed.source_url(tcp=tcp), "--slot", SLOT, "--start"]
        command += ["-f", file.name, "-F", "1", "--no-loop", "--endpos", bed.end]
        command += ["-o", "proto_version=1", "-o", f"publication_names={PUBLICATION}"]
        started = time.monotonic()
        process = subprocess.Popen(command, env=os.environ | {"PGTZ": "UTC"})
        try:
            _, status, usage = os.wait4(process.pid, 0)
        except BaseException:
            process.kill()
            process.wait()
            raise
        seconds = time.monotonic() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise RuntimeError(f"pg_recvlogical ended with {process.returncode}")
        return Captured(seconds, usage.ru_utime + usage.ru_stime, Path(file.name).stat().st_size)


@contextmanager
def subscription(bed: Bed, *, backlog: bool) -> Iterator[None]:
    """PostgreSQL's own replication into the target database, not yet enabled; with `backlog` from the held slot on."""
    if backlog:
        bed.copy_slot(SLOT)
    else:
        bed.make_slot(SLOT)
    with psycopg.connect(bed.target.url(TARGET_DB), autocommit=True) as connection:
        options = f"copy_data = false, create_slot = false, enabled = false, slot_name = '{SLOT}'"
        url = bed.source_url().replace("'", "''")
        connection.execute(
            f"CREATE SUBSCRIPTION {SUBSCRIPTION} CONNECTION '{url}' PUBLICATION {PUBLICATION} WITH ({options})".encode()
        )
        try:
            yield
        finally:
            connection.execute(f"ALTER SUBSCRIPTION {SUBSCRIPTION} DISABLE".encode())
            connection.execute(f"ALTER SUBSCRIPTION {SUBSCRIPTION} SET (slot_name = NONE)".encode())
            connection.execute(f"DROP SUBSCRIPTION {SUBSCRIPTION}".encode())
            bed.drop_slots(SLOT)


def enable(bed: Bed) -> float:
    """Let it run; returns the clock (monotonic) of that moment."""
    started = time.monotonic()
    bed.target.sql(f"ALTER SUBSCRIPTION {SUBSCRIPTION} ENABLE", TARGET_DB)
    return started


def synced_copy(megabytes: int, window: int = 8) -> float:
    """MB/s of 1 MB blocks over loopback, each acknowledged once it is appended and synced: the floor under a pump."""
    block = os.urandom(1 << 20)
    with socket.create_server(("127.0.0.1", 0)) as listener, tempfile.NamedTemporaryFile(prefix="tg-bench-") as file:
        receiver = threading.Thread(target=_receive, args=(listener, file.fileno(), megabytes), daemon=True)
        receiver.start()
        with socket.create_connection(listener.getsockname()) as link:
            started = time.monotonic()
            acknowledged = 0
            for sent in range(megabytes):
                while sent - acknowledged >= window:
                    acknowledged += len(link.recv(window))
                link.sendall(block)
            while acknowledged < megabytes:
                acknowledged += len(link.recv(window))
            seconds = time.monotonic() - started
        receiver.join()
    return megabytes * 1.048576 / seconds


def _receive(listener: socket.socket, file: int, blocks: int) -> None:
    """The other end; every call in it lets go of the interpreter's lock."""
    link, _ = listener.accept()
    buffer = memoryview(bytearray(1 << 20))
    with link:
        for _ in range(blocks):
            got = 0
            while got < len(buffer):
                got += link.recv_into(buffer[got:])
            os.write(file, buffer)
            os.fdatasync(file)
            link.sendall(b".")
