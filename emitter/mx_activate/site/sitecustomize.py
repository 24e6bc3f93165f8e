"""Python runs this at its start, where our directory is first on ``PYTHONPATH``.

It stands where another `sitecustomize` would have run, and runs that as well.
"""


def _activate() -> None:
    try:
        import mx_activate
    except ImportError:
        # Another environment's Python than the one that put us here. It is told what it lacks if
        # it ever imports the client; all others are left in peace.
        import importlib.util
        import os
        import sys

        package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        spec = importlib.util.spec_from_file_location(
            "mx_activate", os.path.join(package, "__init__.py")
        )
        if spec is None or spec.loader is None:
            return
        mx_activate = importlib.util.module_from_spec(spec)
        sys.modules["mx_activate"] = mx_activate
        spec.loader.exec_module(mx_activate)
    mx_activate.activate()


def _run_the_next() -> None:
    """What it raises is for `site` to tell, as it would be without us.

    One that we ran may look for the next one in turn, as ddtrace's does without its own directory,
    and finds us, who come first. So we are run once more, and go on behind the last one that ran.
    """
    import os
    import sys
    from importlib.machinery import PathFinder

    here = os.path.dirname(os.path.realpath(__file__))
    ours = vars(sys.modules.get("mx_activate", sys))
    ran: set[str] = ours.setdefault("_mx_ran", set())
    ran.add(here)
    places = [os.path.realpath(place) for place in sys.path]
    # Only what comes after us: whoever came before, and ran us in turn, is not run again.
    first = places.index(here) + 1 if here in places else 0
    for place, path in zip(places[first:], sys.path[first:], strict=True):
        spec = None if place in ran else PathFinder.find_spec("sitecustomize", [path])
        if spec is None or spec.loader is None or spec.origin is None:
            continue
        from importlib.util import module_from_spec

        ran.add(place)
        module = ours["_mx_last"] = module_from_spec(spec)
        sys.modules["sitecustomize"] = module  # importers get that one
        spec.loader.exec_module(module)
        return
    if "_mx_last" in ours:
        sys.modules["sitecustomize"] = ours["_mx_last"]


def _be_first_again() -> None:
    """OpenTelemetry's puts itself first for children, and runs nobody after it."""
    import os
    import sys

    mx_activate = sys.modules.get("mx_activate")
    if mx_activate is not None and mx_activate.SITE in os.environ.get("PYTHONPATH", ""):
        os.environ.update(mx_activate.with_site(os.environ))


try:  # noqa: SIM105 - contextlib is not imported for us alone
    _activate()
except Exception:
    pass  # no Python may fail to start for us
try:
    _run_the_next()
finally:
    _be_first_again()
