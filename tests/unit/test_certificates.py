"""CREATE, RENEW and INFO CERTIFICATES: files, names, what is refused, what a crash leaves, and who is warned."""

from __future__ import annotations

import datetime as dt
import os
import shutil
import ssl
import stat
import subprocess
from pathlib import Path

import pytest

from ggsci.certificates import files, revoking
from ggsci.certificates.files import Expiry
from ggsci.certificates.folder import CertificateFacts, Folder
from tests.support.homes import as_json, bad, good, make_home
from tests.support.secure import certify, folder
from trails import fs
from trails.clock import RealClock
from trails.errors import DamageError
from trails.fs import RealFs
from trails.link import tls
from trails.runtime.home.home import Home
from trails.runtime.report.report import Log


@pytest.fixture
def homes(tmp_path):
    return make_home(tmp_path / "a"), make_home(tmp_path / "b")


def fits(near: Home, far: Home, host: str = "127.0.0.1") -> bool:
    """Whether `near` can connect to `far` under that name: a handshake in memory."""
    to_far, to_near = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = tls.client_context(tls.folder_of(near.root)).wrap_bio(to_near, to_far, server_hostname=host)
    server = tls.server_context(tls.folder_of(far.root)).wrap_bio(to_far, to_near, server_side=True)
    for _ in range(4):
        for end in (client, server):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError:
                return False
    return client.version() == "TLSv1.3" and server.getpeercert() is not None


def test_one_command_serves_two_homes(homes):
    """CA, keys and certificates are there, private, and good for both directions and all of loopback's names."""
    here, there = homes
    text = good(here, f"CREATE CERTIFICATES, PEER {there.root}, HOSTS 'there.example 10.0.0.2, fd00::2'")
    assert text.count("fingerprint") == 2
    for near, far in ((here, there), (there, here)):
        for host in ("127.0.0.1", "localhost", "::1"):
            assert fits(near, far, host)
    for host in ("there.example", "10.0.0.2", "fd00::2"):
        assert fits(here, there, host)
        assert not fits(there, here, host)
    for home, names in (
        (here, {"ca.key", "ca.crt", "ca.issued", "home.key", "home.crt"}),
        (there, {"ca.crt", "home.key", "home.crt"}),
    ):
        path = tls.folder_of(home.root)
        assert set(os.listdir(path)) == names
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o700
        assert {stat.S_IMODE(os.stat(os.path.join(path, name)).st_mode) for name in names} == {0o600}


def test_they_stand_the_strict_rules_of_others(homes):
    """openssl verifies the chain under RFC 5280's rules."""
    here, there = homes
    good(here, f"CREATE CERTIFICATES, PEER {there.root}")
    command = [
        "openssl",
        "verify",
        "-x509_strict",
        "-CAfile",
        folder(here).file("ca.crt"),
        folder(there).file("home.crt"),
    ]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_a_folder_for_a_home_elsewhere(homes, tmp_path):
    """What is in it fits a home, once it is copied there; the words say so."""
    here, there = homes
    plain = tmp_path / "for-there"
    text = good(here, f"CREATE CERTIFICATES, PEER {plain}, HOSTS there, HOMEID {there.id}")
    assert f"of home {there.id}" in text
    assert "Copy ca.crt, home.crt and, the first time, home.key" in text
    assert "loopback only" in good(here, f"CREATE CERTIFICATES, PEER {tmp_path / 'no-hosts'}, HOMEID {there.id}")
    shutil.copytree(plain, tls.folder_of(there.root))
    assert fits(here, there, "there") and fits(there, here)


def test_a_renewal_keeps_key_names_and_needs_no_key(homes, tmp_path):
    """A folder with the peer's home.crt alone is enough; the new one fits the key that stayed there."""
    here, there = homes
    good(here, f"CREATE CERTIFICATES, PEER {there.root}, HOSTS 'there 10.0.0.2', DAYS 20")
    before = folder(there).facts(tls.CERTIFICATE)
    old_key = folder(there).read(tls.KEY)
    sent = tmp_path / "sent"
    sent.mkdir()
    shutil.copy(folder(there).file(tls.CERTIFICATE), sent)
    good(here, f"RENEW CERTIFICATES, PEER {sent}")
    assert not (sent / "home.key").exists()
    shutil.copy(sent / "home.crt", folder(there).file(tls.CERTIFICATE))
    after = folder(there).facts(tls.CERTIFICATE)
    assert (set(after.names), after.fingerprint == before.fingerprint) == (set(before.names), False)
    assert after.ends - before.ends > dt.timedelta(days=600)
    assert folder(there).read(tls.KEY) == old_key
    assert fits(here, there, "there")
    good(here, f"RENEW CERTIFICATES, PEER {there.root}, HOSTS other")
    assert fits(here, there, "other") and not fits(here, there, "there")
    good(here, "RENEW CERTIFICATES")
    assert fits(here, there)


def test_a_ca_near_its_end_goes_on_with_its_key(homes, monkeypatch):
    """A renewal that would outlive the CA certifies the CA anew; peers that have only the old one still fit."""
    here, there = homes
    monkeypatch.setattr(files, "CA_DAYS", 40)
    good(here, f"CREATE CERTIFICATES, PEER {there.root}, DAYS 30")
    old = folder(here).facts(tls.CA)
    good(here, "RENEW CERTIFICATES, DAYS 200")
    assert folder(here).facts(tls.CA).ends - old.ends > dt.timedelta(days=100)
    assert folder(there).facts(tls.CA).fingerprint == old.fingerprint
    assert fits(there, here) and fits(here, there)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("CREATE CERTIFICATES", "home.crt exists already. RENEW CERTIFICATES"),
        ("CREATE CERTIFICATES, PEER {there}", "home.crt exists already"),
        ("CREATE CERTIFICATES, PEER {new}, HOSTS 'a/b'", "found 'a/b'"),
        ("CREATE CERTIFICATES, PEER {new}, HOSTS '10.0.0.1/8'", "found '10.0.0.1/8'"),
        ("CREATE CERTIFICATES, PEER {new}, HOSTS b", "expected HOMEID, the id of the home"),
        ("CREATE CERTIFICATES, PEER {new}, HOMEID 12", "HOMEID: expected 32 hex digits, found 12"),
        ("RENEW CERTIFICATES, HOMEID " + "f" * 32, "HOMEID: that home's id is"),
        ("REVOKE CERTIFICATES, HOMEID " + "f" * 32 + "!", "no certificate of home ffff"),
        ("REVOKE CERTIFICATES, HOMEID 5!", "HOMEID: expected 32 hex digits"),
        ("REVOKE CERTIFICATES, PEER {here}!", "who has its key has the CA's key too"),
        ("REVOKE CERTIFICATES, HOMEID {id}!", "who has its key has the CA's key too"),
        ("REVOKE CERTIFICATES, PEER {new}!", "home.crt is missing"),
        ("CREATE CERTIFICATES, PEER {new}, DAYS 0", "DAYS: expected 1 to 3650"),
        ("RENEW CERTIFICATES, DAYS 5000", "DAYS: expected 1 to 3650"),
        ("RENEW CERTIFICATES, PEER {new}", "home.crt is missing. CREATE CERTIFICATES"),
    ],
)
def test_what_can_not_be_meant_is_refused(homes, tmp_path, line, told):
    """And nothing is written."""
    here, there = homes
    good(here, f"CREATE CERTIFICATES, PEER {there.root}")
    before = folder(here).read(tls.CERTIFICATE)
    assert told in bad(here, line.format(here=here.root, id=here.id, there=there.root, new=tmp_path / "new"))
    assert not (tmp_path / "new").exists() and not folder(here).has(tls.REVOKED)
    assert folder(here).read(tls.CERTIFICATE) == before


def test_only_the_home_with_the_cas_key_makes_certificates(homes, tmp_path):
    """The other one is told where."""
    here, there = homes
    good(here, f"CREATE CERTIFICATES, PEER {there.root}")
    assert "ca.key is missing: the CA's key is kept in the home" in bad(there, "RENEW CERTIFICATES")
    assert "Give this command there" in bad(there, f"CREATE CERTIFICATES, PEER {tmp_path / 'c'}, HOMEID {here.id}")


def test_a_certificate_of_another_ca_is_not_renewed(homes, tmp_path):
    """A renewal signs the key and names that it finds: they must be what this CA signed before."""
    here, there = homes
    good(here, f"CREATE CERTIFICATES, PEER {tmp_path / 'own'}, HOSTS there, HOMEID {there.id}")
    good(there, f"CREATE CERTIFICATES, PEER {tmp_path / 'forged'}, HOSTS there, HOMEID {there.id}")
    before = (tmp_path / "forged" / "home.crt").read_bytes()
    assert "is not of the CA in" in bad(here, f"RENEW CERTIFICATES, PEER {tmp_path / 'forged'}")
    assert (tmp_path / "forged" / "home.crt").read_bytes() == before
    good(here, f"RENEW CERTIFICATES, PEER {tmp_path / 'own'}")


class CrashingFs(RealFs):
    """Ends at the n-th rename or write of a new file."""

    def __init__(self, calls: int) -> None:
        self.calls = calls

    def _count(self) -> None:
        self.calls -= 1
        if self.calls < 0:
            raise KeyboardInterrupt

    def create(self, path):
        self._count()
        return super().create(path)

    def rename(self, source, target):
        self._count()
        super().rename(source, target)


def test_a_crash_at_any_file_leaves_what_the_same_command_mends(tmp_path):
    """Before each file and before each of its renames: the command given again ends with two homes that fit."""
    for calls in range(100):
        here, there = make_home(tmp_path / f"a{calls}"), make_home(tmp_path / f"b{calls}")
        crashing = Home(here.root, CrashingFs(calls))
        try:
            files.ensure_ca(Folder(crashing, tls.folder_of(here.root)), here.id, 90)
            for home in (here, there):
                target = Folder(crashing, tls.folder_of(home.root))
                files.issue(Folder(crashing, tls.folder_of(here.root)), target, "x", files.ALWAYS, 90, home.id)
        except KeyboardInterrupt:
            good(here, f"CREATE CERTIFICATES, PEER {there.root}")
            assert fits(here, there) and fits(there, here), calls
        else:
            assert calls == 18
            return
    raise AssertionError("the command never came to its end")


def test_a_crash_in_a_renewal_or_a_revocation_cuts_no_link(homes):
    """At any file: what is there fits as before, and the same command again ends well."""
    here, there = homes
    good(here, f"CREATE CERTIFICATES, PEER {there.root}, DAYS 30")

    def renew(ca: Folder, target: Folder) -> None:
        files.ensure_ca(ca, here.id, 5000)  # the CA is certified anew first
        files.issue(ca, target, "x", files.ALWAYS, 30, there.id)

    def revoke(ca: Folder, _target: Folder) -> None:
        revoking.revoke(ca, files.CA_KEY, [7])

    for command, least in ((renew, 6), (revoke, 2)):
        for calls in range(20):
            crashing = CrashingFs(calls)
            folders = [Folder(Home(home.root, crashing), tls.folder_of(home.root)) for home in homes]
            try:
                command(*folders)
                done = True
            except KeyboardInterrupt:
                done = False
            assert fits(here, there) and fits(there, here), calls
            if done:
                break
        assert done and calls >= least
    good(here, f"RENEW CERTIFICATES, PEER {there.root}")
    assert fits(here, there) and fits(there, here)


def test_info_shows_what_there_is(homes):
    """Nothing at first; then subject, names, fingerprint and end, also as JSON."""
    here, there = homes
    text = good(here, "INFO CERTIFICATES")
    assert "no certificates" in text and f"Home id: {here.id}" in text
    good(here, f"CREATE CERTIFICATES, PEER {there.root}, HOSTS there, DAYS 29")
    assert "its key is kept here" in good(here, "INFO CERTIFICATES")
    shown = good(there, "INFO CERTIFICATES")
    assert "This home: there" in shown
    assert "expires in 2" in shown
    ca, own = as_json(there, "INFO CERTIFICATES")
    assert (ca["ca"], ca["has_ca_key"], own["ca"]) == (True, False, False)
    assert {"there", "localhost", "127.0.0.1", "::1"} <= set(own["names"])
    assert len(own["sha256"]) == 95
    assert (ca["home"], own["home"], own["revoked"]) == ("", there.id, [])
    assert "RENEW CERTIFICATES" in own["warning"]


def test_a_damaged_certificate_is_named(homes):
    """In INFO as everywhere."""
    here, _ = homes
    certify(here, here)
    folder(here).write(tls.CERTIFICATE, b"nonsense")
    assert "home.crt: expected a PEM certificate" in bad(here, "INFO CERTIFICATES")
    with pytest.raises(DamageError):
        folder(here).facts(tls.CERTIFICATE)


NOW = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("ends", "told"),
    [
        (dt.timedelta(days=31), ""),
        (dt.timedelta(days=30), ""),
        (dt.timedelta(days=30, seconds=-1), "expires in 29 days"),
        (dt.timedelta(hours=3), "expires in 0 days"),
        (dt.timedelta(0), "expired at 2030-01-01 00:00 UTC"),
        (dt.timedelta(days=-9), "expired at 2029-12-23"),
    ],
)
def test_the_last_thirty_days_are_warned_of(ends, told):
    """To the second."""
    found = CertificateFacts("x", "s", (), "", NOW, NOW + ends).warning(NOW)
    assert (told in found) if told else not found


def test_the_manager_warns_at_its_start_and_each_day(homes):
    """In ggserr.log, one line a certificate; a damaged one is named and ends nobody."""
    here, _ = homes
    certify(here, here, days=5)
    watch = Expiry(here, Log(here, "Trailgate Manager", "mgr.prm", RealClock()))
    for now in (0.0, 1.0, files.CHECK_SECONDS - 1):
        watch.look(now)
    assert Path(here.ggserr).read_text().count("home.crt expires in 4 days") == 1
    folder(here).write(tls.CERTIFICATE, b"nonsense")
    watch.look(files.CHECK_SECONDS)
    assert "expected a PEM certificate" in Path(here.ggserr).read_text()


# --- whose it is ------------------------------------------------------------------------------------------------------


def test_a_certificate_names_its_home(homes, tmp_path):
    """As openssl sees it too; a renewal keeps it, and gives it to one that an older release made."""
    here, there = homes
    good(here, f"CREATE CERTIFICATES, PEER {there.root}")
    for home in homes:
        command = ["openssl", "x509", "-noout", "-ext", "subjectAltName", "-in", folder(home).file("home.crt")]
        shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert f"URI:urn:trailgate:home:{home.id}" in shown
    good(here, f"RENEW CERTIFICATES, PEER {there.root}")
    assert folder(there).facts(tls.CERTIFICATE).home == there.id
    files.issue(folder(here), folder(there), "old", files.ALWAYS, 60, "")
    assert "names no home, so peers refuse it: RENEW CERTIFICATES" in good(there, "INFO CERTIFICATES")
    sent = tmp_path / "sent"
    sent.mkdir()
    shutil.copy(folder(there).file("home.crt"), sent)
    assert "expected HOMEID" in bad(here, f"RENEW CERTIFICATES, PEER {sent}")
    good(here, f"RENEW CERTIFICATES, PEER {sent}, HOMEID {there.id}")
    assert Folder(here, str(sent)).facts(tls.CERTIFICATE).home == there.id


def test_a_copied_home_needs_a_key_of_its_own(homes, tmp_path):
    """The copy is the same home until it gets another id; then its certificate is refused, and not renewed."""
    here, there = homes
    good(here, f"CREATE CERTIFICATES, PEER {there.root}")
    shutil.copytree(there.root, tmp_path / "copy")
    copy = Home.at(str(tmp_path / "copy"))
    assert copy.id == there.id and "WARNING" not in good(copy, "INFO CERTIFICATES")
    os.remove(os.path.join(copy.root, "dirpcs", "HOME"))
    good(copy, "CREATE SUBDIRS")
    copy = Home.at(copy.root)
    assert copy.id != there.id
    assert f"is home {there.id}'s, this is home {copy.id}" in good(copy, "INFO CERTIFICATES")
    assert "Two homes share no key" in bad(here, f"RENEW CERTIFICATES, PEER {copy.root}")
    for name in (tls.CERTIFICATE, tls.KEY):
        os.remove(folder(copy).file(name))
    good(here, f"CREATE CERTIFICATES, PEER {copy.root}")
    assert folder(copy).facts(tls.CERTIFICATE).home == copy.id
    assert folder(copy).read(tls.KEY) != folder(there).read(tls.KEY)


# --- revoking ---------------------------------------------------------------------------------------------------------


def test_a_home_is_revoked_with_all_its_certificates(homes, tmp_path):
    """Older ones for the same key too; the list goes with the next CREATE or RENEW for a peer, and INFO shows it."""
    here, there = homes
    good(here, f"CREATE CERTIFICATES, PEER {there.root}")
    good(here, f"CREATE CERTIFICATES, PEER {tmp_path / 'third'}, HOMEID {'3' * 32}")
    first = folder(there).read(tls.CERTIFICATE)
    good(here, f"RENEW CERTIFICATES, PEER {there.root}")
    assert fits(here, there)
    text = good(here, f"REVOKE CERTIFICATES, HOMEID {there.id.upper()}!")
    assert f"2 certificates of home {there.id} revoked" in text and "Copy ca.crl into dircrd/tls of every" in text
    assert fits(there, here) is False
    assert fits(here, there) is False
    folder(there).write(tls.CERTIFICATE, first)
    assert not fits(here, there), "the older one is for the same key"
    shown = good(here, "INFO CERTIFICATES")
    assert "Revoked: 2 certificates" in shown and shown.count(there.id) == 2
    assert len(as_json(here, "INFO CERTIFICATES")[0]["revoked"]) == 2
    assert "was revoked, and with it the key" in bad(here, f"RENEW CERTIFICATES, PEER {there.root}")
    good(here, f"RENEW CERTIFICATES, PEER {tmp_path / 'third'}")
    text = good(here, f"CREATE CERTIFICATES, PEER {tmp_path / 'fourth'}, HOMEID {'4' * 32}")
    assert "Copy ca.crt, ca.crl, home.crt and, the first time, home.key" in text
    assert (tmp_path / "third" / "ca.crl").read_bytes() == folder(here).read(tls.REVOKED)
    for name in (tls.CERTIFICATE, tls.KEY):
        os.remove(folder(there).file(name))
    good(here, f"CREATE CERTIFICATES, PEER {there.root}")
    assert fits(here, there) and fits(there, here), "with a new key it is let in again"


@pytest.mark.parametrize(
    "line",
    ["CREATE CERTIFICATES, PEER {new}, HOMEID {id}", "RENEW CERTIFICATES", "REVOKE CERTIFICATES, HOMEID {id}!"],
)
def test_one_command_at_a_time_is_at_the_ca(homes, tmp_path, monkeypatch, line):
    """Each reads its files and writes them anew: of two at once one's note, or its revocation, would be lost."""
    here, there = homes
    good(here, f"CREATE CERTIFICATES, PEER {there.root}")
    monkeypatch.setattr(fs, "LOCK_SECONDS", 0)
    line = line.format(new=tmp_path / "new", id=there.id)
    with here.alone("dircrd"):
        assert f"held by process {os.getpid()}" in bad(here, line)
    assert not (tmp_path / "new").exists() and not folder(here).has(tls.REVOKED)


def test_an_ended_certificate_of_a_revoked_home_is_not_renewed(homes):
    """It is for the same key: who stole that would have a good one again."""
    here, there = homes
    certify(here, here)
    certify(here, there, days=0)
    ended = folder(there).read(tls.CERTIFICATE)
    good(here, f"RENEW CERTIFICATES, PEER {there.root}")
    assert "2 certificates" in good(here, f"REVOKE CERTIFICATES, HOMEID {there.id}!")
    folder(there).write(tls.CERTIFICATE, ended)
    assert "was revoked, and with it the key" in bad(here, f"RENEW CERTIFICATES, PEER {there.root}")


def test_a_certificate_that_nobody_noted_is_revoked_by_its_folder(homes):
    """ca.issued may be lost, or be younger than the certificate; the list keeps what was on it."""
    here, there = homes
    good(here, f"CREATE CERTIFICATES, PEER {there.root}")
    os.remove(folder(here).file(revoking.ISSUED))
    assert "no certificate of home" in bad(here, f"REVOKE CERTIFICATES, HOMEID {there.id}!")
    assert "1 certificates" in good(here, f"REVOKE CERTIFICATES, PEER {there.root}!")
    assert len(revoking.revoked(folder(here))) == 1
    assert "ca.key is missing. Give this command in the home" in bad(there, f"REVOKE CERTIFICATES, HOMEID {here.id}!")


def test_the_list_stands_the_strict_rules_of_others_and_outlives_the_ca(homes, monkeypatch):
    """openssl takes it under RFC 5280's rules, also after the CA was certified anew by its old key."""
    here, there = homes
    good(here, f"CREATE CERTIFICATES, PEER {there.root}, DAYS 30")
    good(here, f"REVOKE CERTIFICATES, PEER {there.root}!")

    def verified(home: Home) -> str:
        command = ["openssl", "verify", "-x509_strict", "-crl_check", "-CAfile", folder(here).file("ca.crt"),
                   "-CRLfile", folder(here).file("ca.crl"), folder(home).file("home.crt")]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    for days in (30, 3650):
        good(here, f"RENEW CERTIFICATES, DAYS {days}")
        assert "OK" in verified(here) and "certificate revoked" in verified(there)


def test_damaged_lists_are_named(homes):
    """By whoever needs them."""
    here, there = homes
    good(here, f"CREATE CERTIFICATES, PEER {there.root}")
    for damaged in (b"[1]", b"{", b"{}x", b'[{"number": "?", "home": "h"}]', b'[{"number": 5, "home": "h"}]'):
        folder(here).write(revoking.ISSUED, damaged)
        assert "ca.issued: expected a list of certificates" in bad(here, f"REVOKE CERTIFICATES, HOMEID {there.id}!")
    os.remove(folder(here).file(revoking.ISSUED))
    folder(here).write(tls.REVOKED, b"nonsense")
    assert "ca.crl: expected a PEM list" in bad(here, f"REVOKE CERTIFICATES, PEER {there.root}!")
    assert "ca.crl: expected a PEM list" in bad(here, "INFO CERTIFICATES")
