"""A Spark task that stays: it calls its driver, then takes one order after the other until the driver hangs up.

    born     consumes its partition, connects, says who it is
    idle     waits for an order, without a limit: that the driver is gone is certain to end the wait
    working  decodes; says now and then that it is alive
    end      the driver has hung up, or is another process's child by now: it returns, and Spark keeps the worker

Rule: an order's answer goes into the link that the order came through, and nowhere else. So what an orphan makes
reaches nobody: its driver's end of the link has died with the driver (CW-14).
"""

from __future__ import annotations

import os
import pickle
import socket
import ssl
import threading
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from replicat.work.decode import run_partition
from replicat.work.orders import ALIVE_SECONDS, Greeting, HungUpError, Kept, OrderLink, Says, Summons, kept_alive

CONNECT_SECONDS = 30.0


def serve(call: Summons, partition: Iterable[Any]) -> Iterator[int]:
    """For mapPartitions: how many orders were answered. What is no expected error of an order is raised, so that Spark
    fails the job.
    """
    from pyspark import TaskContext

    for _ in partition:  # Spark's thread that writes it is done then
        pass
    context = TaskContext.get()
    assert context is not None
    hello = Greeting(context.partitionId(), context.attemptNumber(), os.getpid())
    try:
        end = connected(call)
    except OSError:
        if call.certificate:  # or nobody would learn what is wrong with the network
            raise
        return iter([0])  # whoever called has gone
    return iter([_Task(OrderLink(end)).run(hello.packed(call))])


def connected(call: Summons) -> socket.socket:
    """A link to whoever has called, and to nobody else. Raises OSError."""
    if call.certificate:
        return _connected_by_tls(call)
    end = socket.socket(socket.AF_UNIX)
    try:
        end.connect(call.address)
    except OSError:
        end.close()
        raise
    return end


def _connected_by_tls(call: Summons) -> socket.socket:
    host, _, port = call.address.rpartition(":")
    end = socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS)
    try:
        kept_alive(end)
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        tls.minimum_version = ssl.TLSVersion.TLSv1_3
        tls.check_hostname = False  # the certificate is known itself, whatever its host is called
        tls.load_verify_locations(cadata=call.certificate)
        link = tls.wrap_socket(end)
    except BaseException:
        end.close()
        raise
    link.settimeout(None)
    return link


class _Task:
    """One end of a link, and what was sent once for many orders."""

    def __init__(self, link: OrderLink) -> None:
        self._link = link
        self._sending = threading.Lock()
        self._working = 0  # the number of the order
        self._over = threading.Event()
        self._parent = os.getppid()
        self._kept: Kept = ({}, {})

    def run(self, hello: bytes) -> int:
        """Until the driver hangs up; how many orders were answered."""
        answered = 0
        teller = threading.Thread(target=self._tell, name="alive", daemon=True)
        teller.start()
        try:
            going = self._send(Says.HELLO, 0, hello)
            while going and (order := self._order()) is not None:
                answer = pickle.dumps(self._answer(*order), pickle.HIGHEST_PROTOCOL)
                going = os.getppid() == self._parent and self._send(Says.ANSWER, order[0], answer)
                answered += going
        finally:
            self._over.set()
            self._link.shut()
            teller.join()
            self._link.close()
        return answered

    def _order(self) -> tuple[int, bytes] | None:
        """The next one's number and what it says; None once nobody will send any."""
        try:
            _, number, data = self._link.receive()
        except (HungUpError, OSError):
            return None
        return number, data

    def _answer(self, number: int, data: bytes) -> Any:
        task, kept = pickle.loads(data)
        self._kept = kept or self._kept
        plans, columns = self._kept
        self._working = number
        (answer,) = run_partition([replace(task, plans=plans, columns=columns)])
        with self._sending:  # from now on nothing is sent but by this thread: TLS bears one at a time, reader or writer
            self._working = 0
        return answer

    def _send(self, kind: Says, number: int, data: bytes = b"") -> bool:
        """Whether somebody is there to read it."""
        try:
            self._link.send(kind, number, data)
        except OSError:
            return False
        return True

    def _tell(self) -> None:
        while not self._over.wait(ALIVE_SECONDS):
            with self._sending:
                if self._working:
                    self._send(Says.ALIVE, self._working)
