"""The errors of the exporter's commands.

::

    MxError          exit 1: the command was used rightly and failed
    ├── BindError    the endpoint's port could not be had
    └── UsageError   exit 2: a flag, a variable or an argument is wrong

A message is one line: what was attempted, on what, why it failed, and what to do next. The
command line prints it on standard error without a traceback and leaves with ``exit_code``.
"""

from __future__ import annotations


class MxError(Exception):
    """Base of all errors that the user sees as one line, without a traceback."""

    exit_code = 1


class BindError(MxError):
    """The endpoint's port could not be had. Trying again would not help."""


class PortInUse(BindError):
    """Another program has the port."""


class UsageError(MxError):
    """The command was used wrongly: a bad value, or a log that is not there."""

    exit_code = 2
