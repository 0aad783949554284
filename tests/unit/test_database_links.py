"""Links to databases: what a URL says of TLS reaches the driver; CHECK PARAMS tells of a link nobody vouches for."""

from __future__ import annotations

import datetime as dt
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from extract import checking as extract_checking
from extract.params import ExtractParams
from extract.sources.postgres import driver as pgdriver
from replicat.params import ReplicatParams
from replicat.run import checking as replicat_checking
from replicat.targets.kinds import admin_for
from replicat.targets.mysql.link import MysqlUrl
from trails.errors import AwayError, OperatorError
from trails.runtime.home.home import Home
from trails.runtime.language import params
from trails.testing import FaultFs

REMOTE = "postgresql://u@db.example:5432/shop"


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """A certificate that is its own CA, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "db.example")])
    now = dt.datetime.now(dt.UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + dt.timedelta(1))
    certificate = tmp_path / "ca.crt"
    certificate.write_bytes(made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    secret = tmp_path / "my.key"
    secret.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )  # fmt: skip
    return certificate, secret


@pytest.mark.parametrize("unverified", [pgdriver.unverified, admin_for(REMOTE).unverified])
def test_a_link_to_postgresql_is_vouched_for_by_sslmode(unverified, monkeypatch):
    """Sockets and loopback are this host; verify-ca and verify-full prove the server, from URL or environment."""
    monkeypatch.delenv("PGSSLMODE", raising=False)
    monkeypatch.delenv("PGHOST", raising=False)
    for url in (
        "postgresql:///shop", "postgresql://localhost/shop", "postgresql://127.0.0.1/shop", "postgresql://[::1]/shop",
        "postgresql://%2Fvar%2Frun/shop", f"{REMOTE}?sslmode=verify-full&sslrootcert=/ca.crt",
        f"{REMOTE}?sslmode=verify-ca&sslrootcert=/ca.crt",
    ):  # fmt: skip
        assert unverified(url) == "", url
    for url in (REMOTE, f"{REMOTE}?sslmode=require", "postgresql://u@localhost,db.example/shop"):
        assert "db.example is not verified" in unverified(url)
        assert "sslmode=verify-full&sslrootcert=" in unverified(url)
    assert "on 10.1.2.3 is not" in unverified("postgresql://localhost/shop?hostaddr=10.1.2.3")
    assert "on service prod is not" in unverified("postgresql:///?service=prod")
    monkeypatch.setenv("PGSSLMODE", "verify-full")
    assert unverified(REMOTE) == ""


def test_a_link_to_mysql_is_vouched_for_by_its_ca():
    """A CA says by what the host is verified; ssl_mode says otherwise by the names of the server's own clients."""
    unverified = admin_for("mysql://x").unverified
    for url in ("mysql://u@localhost/d", "mysql:///d?unix_socket=/s&user=u", "mysql://u@h/d?ssl_ca=/ca.crt",
                "mysql://u@h/d?ssl_mode=verify_ca"):  # fmt: skip
        assert unverified(url) == "", url
    for url in ("mysql://u@h/d", "mysql://u@h/d?ssl_mode=required", "mysql://u@h/d?ssl_ca=/c&ssl_mode=required"):
        assert "on h is not verified" in unverified(url) and "ssl_ca=" in unverified(url)
    assert admin_for("sqlite:///x.db").unverified("sqlite:///x.db") == ""


def test_the_options_of_a_mysql_url_reach_the_driver(files):
    """What TLS there is, whose certificate is taken, and which one is shown."""
    certificate, key = files
    preferred = MysqlUrl.parse("mysql://u@h/d")
    found = preferred.context()
    assert found is not None and found.verify_mode == ssl.CERT_NONE and not found.get_ca_certs()
    assert not preferred.insists
    assert MysqlUrl.parse("mysql://u@h/d?ssl_mode=disabled").context() is None
    assert MysqlUrl.parse("mysql:///d?unix_socket=/s&ssl_mode=required").mode == "disabled"
    found = MysqlUrl.parse(f"mysql://u@h/d?ssl_ca={certificate}&ssl_cert={certificate}&ssl_key={key}").context()
    assert found is not None and found.check_hostname and found.verify_mode == ssl.CERT_REQUIRED
    assert found.cert_store_stats()["x509"] == 1
    found = MysqlUrl.parse(f"mysql://u@h/d?ssl_ca={certificate}&ssl_mode=VERIFY_CA").context()
    assert found is not None and not found.check_hostname and found.verify_mode == ssl.CERT_REQUIRED
    required = MysqlUrl.parse("mysql://u@h/d?ssl_mode=required")
    found = required.context()
    assert found is not None and found.verify_mode == ssl.CERT_NONE and required.insists


def test_wrong_options_of_a_mysql_url_are_told(files, tmp_path):
    """The option or the file, and what was expected."""
    certificate, _ = files
    with pytest.raises(OperatorError, match=r"unknown ssl_mode 'maybe'.*Expected one of disabled, preferred, required"):
        MysqlUrl.parse("mysql://u@h/d?ssl_mode=maybe")
    with pytest.raises(OperatorError, match="unknown option ssl_cipher"):
        MysqlUrl.parse("mysql://u@h/d?ssl_cipher=x")
    none = f"ssl_ca={tmp_path}/none"
    unverified = [f"{none}&ssl_mode={mode}" for mode in ("preferred", "required")]
    for query in (none, *unverified, f"ssl_ca={certificate}&ssl_cert={certificate}"):
        with pytest.raises(OperatorError, match="can't be used for TLS"):
            MysqlUrl.parse(f"mysql://u@h/d?{query}").context()


def test_CHECK_PARAMS_tells_of_an_unverified_link(monkeypatch):
    """Before the database is asked: it need not be there."""

    def away(*_args: object) -> None:
        raise AwayError("the source is away")

    monkeypatch.setattr(pgdriver, "Session", away)
    text = "EXTRACT e\nSOURCEDB postgresql://u@192.0.2.1:1/d\nEXTTRAIL ./dirdat/lt\nTABLE s.*;\n"
    found = ExtractParams.from_statements(params.parse_text(text, "e.prm"))
    notes = extract_checking.check(found, None).notes
    assert "The link to the database on 192.0.2.1 is not verified" in notes[0]
    text = "REPLICAT r\nTARGETDB mysql://u@192.0.2.1/d\nSOURCEDB postgresql://u@192.0.2.2/d\nMAP s.*, TARGET d.*;\n"
    wanted = ReplicatParams.from_statements(params.parse_text(text, "r.prm"), "r.prm")
    notes = replicat_checking.check(wanted, None, Home("/nowhere"), FaultFs()).notes
    for note, host in zip(notes[:2], ("192.0.2.1", "192.0.2.2"), strict=True):
        assert f"The link to the database on {host} is not verified" in note
