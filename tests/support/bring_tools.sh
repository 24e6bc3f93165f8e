#!/bin/sh
# Brings promtool, Prometheus, its Pushgateway and a browser for the tests, or the programs that are
# named (mtail, for the benchmarks), from Debian's packages, without installing a package: they are
# unpacked below .venv/tools, so no service starts and nothing on the machine changes. Never
# fails: who needs what could not be had says so.
set -u
AXE=axe-core@4.11.0
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

# bring_whole PROGRAM PACKAGE...: all of the packages, with what they need that is not installed.
bring_whole() {
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
    # `Inst NAME (VERSION ...)` is new, `Inst NAME [OLD] (VERSION ...)` would replace an older one.
    needed=$(apt-get install -s --no-install-recommends "$@" 2>/dev/null |
        sed -n 's/^Inst \([^ ]*\) (.*/\1/p')
    # Word by word: package names hold no blanks.
    # shellcheck disable=SC2086
    [ -n "$needed" ] && apt-get download -qq $needed && for package in $needed; do
        dpkg-deb -x "$package"_*.deb "$tools" && rm -f "$package"_*.deb
    done
    have "$program" || echo "$program: could not be brought (\`apt-get install $*\` does)" >&2
}

# The rules by which the tests judge whether pages can be read by everybody.
bring_axe() {
    [ -f "$tools/axe/axe.min.js" ] && return
    mkdir -p "$tools/axe" && cd "$tools/axe" || return
    command -v npm >/dev/null 2>&1 && npm pack --silent "$AXE" >/dev/null &&
        tar xzf axe-core-*.tgz --strip-components=1 package/axe.min.js
    rm -f axe-core-*.tgz
    [ -f axe.min.js ] || echo "axe-core: could not be brought (\`npm pack $AXE\` does)" >&2
}

for program in "${@:-}"; do
    case $program in
        "")
            bring prometheus prometheus
            # In the same package up to Debian 12, in one of its own from 13 on.
            bring promtool prometheus promtool
            bring prometheus-pushgateway prometheus-pushgateway
            bring_whole chromedriver chromium chromium-driver fonts-liberation
            bring_axe
            ;;
        axe) bring_axe ;;
        chromium) bring_whole chromedriver chromium chromium-driver fonts-liberation ;;
        promtool) bring promtool prometheus promtool ;;
        *) bring "$program" "$program" ;;
    esac
done
exit 0
