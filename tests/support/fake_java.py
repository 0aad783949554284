"""A program in Java's place: Spark's own start scripts run it, so that no JVM is needed for what becomes of a start."""

from __future__ import annotations

from pathlib import Path

SLEEP = "sleep 1000"


def take_its_place(folder: Path, jvm: str) -> str:
    """JAVA_HOME with a Java whose JVM is the shell text `jvm`. Called as Spark's launcher, it says to run that."""
    java = folder / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    program = folder / "java" / "jvm"
    program.write_text(f"#!/bin/sh\n{jvm}\n")
    program.chmod(0o700)
    # What the launcher prints: a NUL and a newline, the command, and nothing else.
    java.write_text(f"#!/bin/sh\nprintf '\\000\\n%s\\000' {program}\n")
    java.chmod(0o700)
    return str(folder / "java")
