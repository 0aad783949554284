#!/bin/sh
# Makes .venv with the pinned dependencies and sees to a Java runtime, and for tests to MariaDB, MySQL and PostgreSQL
# servers and a Chromium.
# Every make target calls it first; when nothing changed since the last time it only compares two hashes.
# Exit codes: 0 ready, 2 somebody must mend what the last line names.
set -eu
cd "$(dirname "$0")/.."

venv=.venv
stamp=$venv/.setup-stamp
log=$venv/setup.log

fingerprint() {
    { pwd; cat pyproject.toml requirements.lock scripts/setup.sh setup.py; find extract replicat -name "*.pyx" | sort | xargs cat; } | cksum
}

java_command() {
    if [ -n "${JAVA_HOME:-}" ]; then echo "$JAVA_HOME/bin/java"; else echo java; fi
}

if [ -x $venv/bin/python ] && [ -f $stamp ] && [ "$(cat $stamp)" = "$(fingerprint)" ] &&
    command -v "$(java_command)" >/dev/null 2>&1; then
    exit 0
fi

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 2; }

# --- Debian packages ------------------------------------------------------------------------------------------------

apt_updated=

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"
    elif command -v sudo >/dev/null 2>&1; then sudo -n "$@"
    else return 1
    fi
}

apt_get() {
    as_root env DEBIAN_FRONTEND=noninteractive timeout 900 apt-get -y -qq \
        -o DPkg::Lock::Timeout=120 -o Acquire::Retries=2 -o Acquire::http::Timeout=30 -o Acquire::https::Timeout=30 \
        -o Dpkg::Use-Pty=0 "$@" </dev/null >>"$apt_log" 2>&1
}

# apt_install PACKAGE: true if it is installed afterwards.
apt_install() {
    command -v apt-get >/dev/null 2>&1 || return 1
    if [ -z "$apt_updated" ]; then
        say "apt-get update"
        apt_updated=1
        apt_get update || :  # one dead source of several is no reason not to try
    fi
    say "apt-get install $1"
    apt_get install --no-install-recommends "$1"
}

apt_log=$(mktemp)
trap 'rm -f "$apt_log"' EXIT

# --- Python ---------------------------------------------------------------------------------------------------------

python=
for candidate in ${PYTHON:-} python3 python3.11 python3.12 python3.13 python3.14; do
    # Run it: a name on PATH may be a shim without a version behind it.
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
        python=$candidate
        break
    fi
done
[ -n "$python" ] ||
    fail "Python 3.11 or newer is needed and none was found (python3 is $(python3 --version 2>/dev/null || echo missing)): install it (Debian 12 and later: apt-get install python3 python3-venv), or name one: make setup PYTHON=/path/to/python3.11"

if ! "$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    apt_install "python$version-venv" || apt_install python3-venv ||
        fail "$python has no venv module and apt could not install it: apt-get install python3-venv, then run this again"
fi

# A copied or moved checkout has a .venv whose scripts name the old place: make it again.
if [ -d $venv ] && ! { [ -x $venv/bin/python ] && [ "$(cat $venv/.place 2>/dev/null)" = "$(pwd)" ]; }; then
    say "removing $venv of another place or interpreter"
    rm -rf $venv
fi
rm -f $stamp
if [ ! -x $venv/bin/python ]; then
    say "making $venv with $("$python" --version)"
    "$python" -m venv $venv || fail "$python could not make $venv: see the lines above"
    pwd > $venv/.place
fi

# Not compiled: what is imported is compiled then, and that is a small part of it.
pip_install() {
    $venv/bin/python -m pip install --quiet --disable-pip-version-check --no-input --no-deps --no-compile "$@" </dev/null >>$log 2>&1 || {
        tail -n 15 $log >&2
        fail "pip could not install the dependencies (whole log: $log): check the network and the package index, then run this again"
    }
}

: > $log
say "installing the dependencies (requirements.lock); the first time takes a minute or two"
# Build tools first and no build isolation, so that they too are the locked ones. Every file's hash must be in the lock;
# nothing is looked for beside it, so what a Python version needs more is told by pip check.
awk '/^[^ #]/ { tool = /^(cython|setuptools|wheel)==/ } tool' requirements.lock >$venv/build.lock
pip_install --require-hashes -r $venv/build.lock
pip_install --require-hashes --no-build-isolation -r requirements.lock
# Where none can be built now, one of older sources must not stay.
find extract replicat -path '*/kernel/*.so' -exec rm -f {} +
pip_install --no-build-isolation -e .
$venv/bin/python -m pip check --disable-pip-version-check >>$log 2>&1 || {
    tail -n 5 $log >&2
    fail "requirements.lock lacks something for $($venv/bin/python --version) (lines above): add it to constraints.txt, then make locked"
}

$venv/bin/python -c 'import extract.sources.postgres.kernel.capture, replicat.targets.sql.kernel.convert, replicat.work.kernel.apply' >>$log 2>&1 ||
    say "no kernels could be compiled, so capturing and applying take several times the CPU: apt-get install gcc python3-dev, then make setup ($log has the reason)"

# --- Java, for Spark ------------------------------------------------------------------------------------------------

java_major() {
    "$(java_command)" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -n 1
}

java_is_fit() {
    major=$(java_major)
    [ -n "$major" ] && [ "$major" -ge 17 ]
}

if ! java_is_fit; then
    [ -z "${JAVA_HOME:-}" ] ||
        fail "JAVA_HOME is $JAVA_HOME, where no Java 17 or newer was found: set it to one, or unset it"
    apt_install openjdk-17-jre-headless || apt_install default-jre-headless || {
        tail -n 5 "$apt_log" >&2
        fail "Spark needs a Java 17+ runtime, none was found and apt could not install one: install one (such as openjdk-17-jre-headless) or set JAVA_HOME"
    }
    java_is_fit ||
        fail "the java on PATH is still older than 17: set JAVA_HOME to a Java 17+ runtime (look under /usr/lib/jvm)"
fi

# --- MariaDB, for tests of that target --------------------------------------------------------------------------------

# The server program only: each test session starts its own on its own socket and port. Debian's package would start a
# service at once; a policy-rc.d that says no (101) while it installs is Debian's way to prevent that.
maria_found() {
    PATH=$PATH:/usr/sbin command -v mariadbd >/dev/null 2>&1 || PATH=$PATH:/usr/sbin command -v mysqld >/dev/null 2>&1
}

policy=/usr/sbin/policy-rc.d
ours=
trap 'rm -f "$apt_log"; [ -z "$ours" ] || as_root rm -f "$policy"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

quiet_install() {
    if [ ! -e $policy ]; then
        ours=1
        printf '#!/bin/sh\nexit 101\n' | as_root tee $policy >/dev/null 2>&1 && as_root chmod 755 $policy || return 1
    fi
    apt_install "$1"
}

if ! maria_found; then
    quiet_install mariadb-server || tail -n 5 "$apt_log" >&2
    maria_found || {
        say "********************************************************************************************"
        say "* NO MARIADB: apt could not install mariadb-server. All tests of MySQL/MariaDB targets will FAIL."
        say "* Everything else works. To mend it: apt-get install mariadb-server, or put mariadbd on PATH."
        say "********************************************************************************************"
    }
fi

# --- MySQL, for tests of that target and source: a Maven artifact, by the resolver that Spark brings ------------------------

mysql_said=$($venv/bin/python -m demo.mysql 2>&1 >>$log) || {
    say "********************************************************************************************"
    say "* NO MYSQL: all tests of MySQL proper (not those of MariaDB) will be SKIPPED. Everything else works."
    say "* $mysql_said"
    say "********************************************************************************************"
}

# --- Debian's PostgreSQL, for tests of extensions, xml and ICU, which the server of the wheel lacks --------------------

postgres_found() {
    ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1
}

if ! postgres_found; then
    quiet_install postgresql || tail -n 5 "$apt_log" >&2
    postgres_found || {
        say "********************************************************************************************"
        say "* NO POSTGRESQL: apt could not install postgresql. All tests of Debian's own version will FAIL."
        say "* Everything else works. To mend it: apt-get install postgresql"
        say "********************************************************************************************"
    }
fi

# --- Chromium, for tests of the Manager's page ------------------------------------------------------------------------

chromium_found() {
    command -v chromedriver >/dev/null 2>&1 &&
        { command -v chromium || command -v chromium-browser || command -v google-chrome; } >/dev/null 2>&1
}

if ! chromium_found; then
    { apt_install chromium && apt_install chromium-driver; } || tail -n 5 "$apt_log" >&2
    chromium_found || {
        say "********************************************************************************************"
        say "* NO CHROMIUM: apt could not install chromium and chromium-driver. Tests of the page will FAIL."
        say "* Everything else works. To mend it: apt-get install chromium chromium-driver"
        say "********************************************************************************************"
    }
fi

fingerprint > $stamp
say "ready: $($venv/bin/python --version), Java $(java_major)"
