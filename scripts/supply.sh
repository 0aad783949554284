#!/bin/sh
# What is installed, and whether it is known to be right:
#   lock   requirements.lock anew from constraints.txt: every package with the hashes of all files of its release
#   sbom   build/sbom.cdx.json: what .venv holds, as CycloneDX
#   audit  looks every locked package up in a public database of known problems
#   tools  scripts/tools.lock anew: the newest releases of what is run here
# The tools come into an environment of their own, build/tools: nothing of theirs is in what they look at. They are
# pinned with hashes as well, by scripts/tools.lock: what says that files are right must be right itself.
# Exit codes: 0 done, 1 audit found known problems, 2 nothing could be done, and the last line says why.
set -eu
cd "$(dirname "$0")/.."

tools=build/tools
say() { printf '%s\n' "$*"; }
fail() { printf '%s\n' "$*" >&2; exit 2; }

# tools_there: all of scripts/tools.lock in build/tools, once.
tools_there() {
    mkdir -p build
    cmp -s scripts/tools.lock $tools/installed.lock && return
    [ -x $tools/bin/python ] || .venv/bin/python -m venv $tools
    $tools/bin/python -m pip install --quiet --disable-pip-version-check --no-input --no-deps --require-hashes \
        -r scripts/tools.lock </dev/null || fail "the tools could not be installed: is the package index reached?"
    cp scripts/tools.lock $tools/installed.lock
}

case ${1:-} in
lock)
    tools_there
    # oracledb is an extra that no target installs.
    grep -v -e '^#' -e '^oracledb==' constraints.txt >build/locked.in
    {
        echo "# Every package that make setup installs, with the hashes of all files of its release; from constraints.txt"
        echo "# by make locked. Installed with --require-hashes: a file that is another one is refused."
        $tools/bin/uv pip compile build/locked.in --generate-hashes --no-deps --no-header --no-annotate --universal \
            --python-version 3.11 --quiet || fail "requirements.lock was not made"
    } >build/requirements.lock
    mv build/requirements.lock requirements.lock
    say "requirements.lock: $(grep -c '==' requirements.lock) packages, $(grep -c 'sha256:' requirements.lock) files"
    ;;
sbom)
    tools_there
    $tools/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible --of JSON \
        -o build/sbom.cdx.json .venv/bin/python || fail "build/sbom.cdx.json was not made"
    say "build/sbom.cdx.json"
    ;;
audit)
    tools_there
    rm -f build/audit.json
    code=0
    $tools/bin/pip-audit --requirement requirements.lock --disable-pip --progress-spinner off --format json \
        --output build/audit.json >build/audit.log 2>&1 || code=$?
    if [ ! -s build/audit.json ]; then
        tail -n 3 build/audit.log >&2
        fail "audit: nothing was checked: no database of known problems could be reached (whole log: build/audit.log)"
    fi
    [ $code = 0 ] || { cat build/audit.log; say "audit: known problems were found: build/audit.json"; exit 1; }
    # A package that the database does not know is skipped, and that is no failure to the tool.
    skipped=$(grep -o '"skip_reason"' build/audit.json | wc -l)
    total=$(grep -c '==' requirements.lock)
    [ "$skipped" = 0 ] || fail "audit: $skipped of $total packages were not found in the database, so nothing is known of them (build/audit.json)"
    say "audit: no known problem in $total packages"
    ;;
tools)
    tools_there
    {
        sed -n '/^#/p' scripts/tools.lock
        $tools/bin/uv pip compile scripts/tools.in --generate-hashes --no-header --no-annotate --universal --upgrade \
            --python-version 3.11 --quiet || fail "scripts/tools.lock was not made"
    } >build/tools.lock
    mv build/tools.lock scripts/tools.lock
    say "scripts/tools.lock: $(grep -c '==' scripts/tools.lock) packages"
    ;;
*) fail "supply.sh lock | sbom | audit | tools" ;;
esac
