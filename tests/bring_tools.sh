#!/bin/sh
# Brings Prometheus and promtool for the tests, from Debian's packages, without installing a package: it is
# unpacked below .venv/tools, so no service starts and nothing on the machine changes.
# Never fails: tests that need what could not be had say so themselves.
set -u
tools=$(cd "$(dirname "$0")/.." && pwd)/.venv/tools
has() { command -v "$1" >/dev/null 2>&1 || [ -x "$tools/usr/bin/$1" ]; }
have() { has prometheus && has promtool; }

have && exit 0
command -v apt-get >/dev/null 2>&1 && command -v dpkg-deb >/dev/null 2>&1 || {
    echo "prometheus, promtool: not found, and no apt-get here to bring it" >&2
    exit 0
}
mkdir -p "$tools/deb" && cd "$tools/deb" || exit 0
[ "$(id -u)" -eq 0 ] && apt-get update -qq
# promtool is in the package `prometheus` up to Debian 12, in one of its own from 13 on.
for package in prometheus promtool; do
    apt-cache show "$package" >/dev/null 2>&1 || continue
    apt-get download -qq "$package" && dpkg-deb -x "$package"_*.deb "$tools"
    have && exit 0
done
echo "prometheus, promtool: could not be brought (as root, \`apt-get install prometheus\` does)" >&2
exit 0
