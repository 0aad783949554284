"""Which of the two servers a source is: their binary logs have one layout and two families of events."""

from __future__ import annotations

from enum import Enum


class Flavour(Enum):
    """The value is the word of the trail's headers."""

    MARIADB = "mariadb"
    MYSQL = "mysql"

    @property
    def title(self) -> str:
        """What people call it."""
        return "MariaDB" if self is Flavour.MARIADB else "MySQL"

    @classmethod
    def of(cls, version: str) -> Flavour:
        """By the server's @@version: MariaDB's always names itself."""
        return cls.MARIADB if "mariadb" in version.lower() else cls.MYSQL
