#!/bin/sh
# Brings promtool, Prometheus and its Pushgateway for the tests, or the programs that are named
# (mtail, for the benchmarks), from Debian's packages, without installing a package: they are
# unpacked below .venv/tools, so no service starts and nothing on the machine changes. Never
# fails: who needs what could not be had says so.
set -u
tools=$(cd "$(dirname "$0")/../.." && pwd)/.venv/tools
have() { command -v "$1" >/dev/null 2>&1 || [ -x "$tools/usr/bin/$1" ]; }

# bring PROGRAM PACKAGE...: from the first of the packages that has it.
bring() {
    program=$1
    shift
    have "$program" && return
    command -v apt-get >/dev/null 2>&1 && command -v dpkg-deb >/dev/null 2>&1 || {
        echo "$program: not found, and no apt-get here to bring it" >&2
        return
    }
    mkdir -p "$tools/deb" && cd "$tools/deb" || return
    [ "$(id -u)" -ne 0 ] || [ -n "${updated-}" ] || apt-get update -qq
    updated=yes
    for package in "$@"; do
        apt-cache show "$package" >/dev/null 2>&1 || continue
        apt-get download -qq "$package" && dpkg-deb -x "$package"_*.deb "$tools"
        have "$program" && return
    done
    echo "$program: could not be brought (as root, \`apt-get install $*\` does)" >&2
}

for program in "${@:-}"; do
    case $program in
        "")
            bring prometheus prometheus
            # In the same package up to Debian 12, in one of its own from 13 on.
            bring promtool prometheus promtool
            bring prometheus-pushgateway prometheus-pushgateway
            ;;
        promtool) bring promtool prometheus promtool ;;
        *) bring "$program" "$program" ;;
    esac
done
exit 0
