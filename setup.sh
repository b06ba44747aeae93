#!/bin/sh
# Set-up of this project, from a machine that has Python >= 3.11 and nothing else of ours.
#
#   sh setup.sh         what running needs: .venv with the pinned packages, Java, Delta's jars, .env
#   sh setup.sh test    and what the tests need: the development packages, Chromium, PostgreSQL
#   sh setup.sh pin     write requirements*.txt from pyproject.toml
#
# `make` calls it before every target. It leaves a stamp in .venv, so that the next call returns at once.
# Where packages and jars come from is for pip's and Maven's own settings to say.
set -eu
cd "$(dirname "$0")"
root=$(pwd -P)

say() { printf 'set-up: %s\n' "$*" >&2; }
refuse() {
    say "$*"
    exit 1
}

# --- set-up is done again in another folder, with other pins, or when the command has another module
wanted_stamp() {
    printf '%s\n' "$root"
    cat setup.sh pyproject.toml requirements.txt requirements-dev.txt | cksum
}
is_stamped() { [ "$(cat ".venv/set-up-for-$1" 2>/dev/null)" = "$(wanted_stamp)" ]; }
stamp() { wanted_stamp >".venv/set-up-for-$1"; }

# --- what only the operating system can give
as_root() {
    if [ "$(id -u)" = 0 ]; then
        env DEBIAN_FRONTEND=noninteractive "$@"
    else
        sudo -n env DEBIAN_FRONTEND=noninteractive "$@"
    fi
}
may_install() { command -v apt-get >/dev/null && as_root true 2>/dev/null; }
install_packages() {
    say "installing $* with apt-get"
    as_root apt-get install --quiet --quiet --yes --no-install-recommends "$@" >/dev/null
}

find_python() {
    for python in python3 python3.13 python3.12 python3.11; do
        if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            return
        fi
    done
    refuse "this needs Python 3.11 or newer as python3, and found none: get it from python.org or your package manager"
}

make_venv() {
    if [ "$(head -n 1 .venv/place 2>/dev/null)" = "$root" ] && .venv/bin/python -c '' 2>/dev/null; then
        return
    fi
    find_python
    if ! "$python" -c 'import ensurepip' 2>/dev/null; then
        may_install || refuse "this Python can't make virtual environments: install python3-venv"
        as_root apt-get update --quiet --quiet
        install_packages python3-venv
    fi
    "$python" -m venv --clear .venv # cleared: scripts of a moved .venv point to where it was
    printf '%s\n' "$root" >.venv/place
}

pip_install() { .venv/bin/python -m pip --quiet --disable-pip-version-check install "$@"; }

install_project() {
    say "installing the packages of $1 into .venv (a few minutes the first time)"
    pip_install --require-hashes --requirement "$1"
    pip_install --no-deps --no-build-isolation --editable .
}

need_java() {
    if ! sentence=$(.venv/bin/python -m ondatra_dagster.warehouse.spark.java_finder 2>&1); then
        [ -z "${JAVA_HOME:-}" ] && may_install || refuse "$sentence"
        as_root apt-get update --quiet --quiet
        for package in openjdk-21-jre-headless openjdk-17-jre-headless; do
            if apt-cache show "$package" >/dev/null 2>&1; then
                install_packages "$package"
                break
            fi
        done
        .venv/bin/python -m ondatra_dagster.warehouse.spark.java_finder >/dev/null
    fi
}

need_browser() {
    command -v chromium >/dev/null && return
    may_install || refuse "the browser tests need Chromium: install it as chromium"
    as_root apt-get update --quiet --quiet
    install_packages chromium fonts-liberation
}

need_postgres() {
    # Debian has the server's own programs off the PATH, and this one on it
    if command -v pg_ctlcluster >/dev/null || command -v pg_ctl >/dev/null; then
        return
    fi
    may_install || refuse "a test needs PostgreSQL: install it as postgresql"
    as_root apt-get update --quiet --quiet
    install_packages postgresql
}

set_up_for_run() {
    is_stamped run && return
    make_venv
    install_project requirements.txt
    need_java
    say "looking for Delta's jars (fetched once a machine)"
    .venv/bin/python -m ondatra_dagster.warehouse.spark.jar_download
    stamp run
}

set_up_for_test() {
    set_up_for_run
    is_stamped test && return
    install_project requirements-dev.txt
    need_browser
    need_postgres
    stamp test
}

# --- the pins: everything for running, then what development adds to it
compile() {
    CUSTOM_COMPILE_COMMAND="make pin" .venv/pip-tools/bin/pip-compile --quiet --upgrade --generate-hashes \
        --allow-unsafe --no-strip-extras --no-emit-index-url --no-emit-find-links --no-emit-trusted-host \
        --no-emit-options "$@"
}
pin() {
    make_venv
    .venv/bin/python -m venv .venv/pip-tools
    .venv/pip-tools/bin/python -m pip --quiet --disable-pip-version-check install 'pip-tools>=7.6,<8'
    say "resolving; pip downloads what it has to look into (several minutes)"
    compile --build-deps-for editable --output-file requirements.txt pyproject.toml
    .venv/bin/python - <<'PYTHON' | compile --constraint requirements.txt --output-file requirements-dev.txt -
import itertools
import tomllib

pyproject = tomllib.load(open("pyproject.toml", "rb"))
extras = pyproject["project"]["optional-dependencies"].values()
print(*pyproject["dependency-groups"]["dev"], *itertools.chain(*extras), sep="\n")
PYTHON
}

[ -e .env ] || (umask 077 && cp .env.example .env)
case ${1:-run} in
run) set_up_for_run ;;
test) set_up_for_test ;;
pin) pin ;;
*) refuse "there is no '$1' here: it is run, test or pin" ;;
esac
