"""Strategies for logs: events of several processes, with odd values and wandering clocks."""

from __future__ import annotations

import json

from hypothesis import strategies as st

#: Label values that break a page which does not take care.
HOSTILE = [
    "",
    " ",
    'quo"te',
    "back\\slash",
    "new\nline",
    "\\n",
    '\\"',
    "\r",
    "\t",
    "nul\0nul",
    "\x7f\x01\x1b",
    "\u2028\u0085",
    "é\U0001f600",
    "\ufffe\uffff",
    "{a='b'} # x",
    "# HELP mx_build_info",
    "# EOF",
    "NaN",
    "x" * 10_000,
]

PROCS = ("aaaaaaaaaaaa", "bbbbbbbbbbbb", "cccccccccccc")

text = st.sampled_from(["", "ok", "random", 'q"uo\\te\n', "\0", "é\U0001f600", "x" * 120])
number = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(-(2**63), 2**64 - 1),
    st.sampled_from([0, 0.0, -0.0, 0.5, 1, 1.0, 5e-324, 1.7976931348623157e308, 0.1, 1e-5]),
    st.sampled_from([None, True, False, "nan", "1", [], {}]),
)
phase = st.sampled_from(["receive", "metadata", "chain", "model_init", "extract", "stray"])
load_id = st.sampled_from([None, "load-1", "load-2"])
worker = st.sampled_from(["", "w1", "w2", "None"])
load = st.one_of(st.none(), number)
engine = st.sampled_from(["vllm", "sglang", "mine"])
model = st.sampled_from([None, "", " m ", "m"])


def fields(**kinds):
    return st.fixed_dictionaries(kinds)


events = st.one_of(
    st.tuples(
        st.sampled_from(["process_started", "segment_continued"]),
        fields(component=st.just("client"), version=st.sampled_from(["0.6.0", "0.7.0"])),
    ),
    st.tuples(
        st.just("source_selected"),
        fields(policy=text, source_worker_id=st.one_of(st.none(), worker)),
    ),
    st.tuples(st.just("source_attempted"), fields(policy=text, result=text)),
    st.tuples(st.just("sources_listed"), fields(policy=text, result=text)),
    st.tuples(st.just("metadata_lookup_failed"), fields(policy=text)),
    st.tuples(st.just("nixl_failed"), fields(kind=text)),
    st.tuples(st.just("nixl_received"), fields(result=text)),
    st.tuples(st.just("candidates_counted"), fields(policy=text, stage=text, count=number)),
    st.tuples(st.just("sources_ordered"), fields(policy=text, seconds=number)),
    st.tuples(st.just("transfer_finished"), fields(policy=text, outcome=text, seconds=number)),
    st.tuples(
        st.just("candidate_loads_seen"),
        fields(loads=st.lists(fields(source_worker_id=worker, load=load), max_size=3)),
    ),
    st.tuples(
        st.just("source_attempt_phase_finished"),
        fields(policy=text, phase=phase, outcome=text, seconds=number),
    ),
    st.tuples(
        st.just("load_started"),
        fields(engine=engine, model=model, model_role=text, load_id=load_id),
    ),
    st.tuples(
        st.just("load_finished"),
        fields(
            engine=engine,
            model=model,
            model_role=text,
            outcome=text,
            seconds=number,
            load_id=load_id,
        ),
    ),
    st.tuples(
        st.sampled_from(["load_phase_started", "load_phase_finished"]),
        fields(engine=engine, model=model, phase=phase, seconds=number, load_id=load_id),
    ),
    st.tuples(
        st.just("artifact_install_step_finished"),
        fields(artifact=text, archive=text, step=phase, seconds=number),
    ),
    st.tuples(st.just("artifact_extracted"), fields(artifact=text, archive=text, bytes=number)),
    st.tuples(st.just("events_dropped"), fields(reason=text, count=number)),
    st.tuples(st.just("recorder_called"), fields(recorder=text)),
    st.tuples(st.just("of_the_future"), fields(policy=number)),
)


#: Reason -> a level with which a line is rejected for it. Its process and number can be read.
FLAWS = {"wrong_type": b"5", "not_json": b"1e999"}


def flawed(line: bytes, reason: str) -> bytes:
    """The line, such that it is rejected for that reason."""
    return line.replace(b'"info"', FLAWS[reason])


@st.composite
def logs(draw, max_events: int = 25):
    """Lines (bytes) of up to three processes, in the order in which each process logged them.

    Timestamps come from a clock that also steps backwards, and are often equal. Some lines are
    rejected, and some of these come beside a good line of the same number.
    """
    lines = []
    seqs = dict.fromkeys(PROCS, 0)
    for name, given in draw(st.lists(events, max_size=max_events)):
        proc = draw(st.sampled_from(PROCS))
        second = draw(st.integers(0, 3))
        seqs[proc] += draw(st.sampled_from([0, 0, 0, 0, 1]))  # a lost one now and then
        record = {
            "event": name,
            "timestamp": f"2026-01-01T00:00:0{second}.000000Z",
            "level": "info",
            "proc": proc,
            "seq": seqs[proc],
            "rank": 0,
            "scheme": draw(st.sampled_from(["", "s"])),
            **given,
        }
        seqs[proc] += 1
        line = json.dumps(record).encode()
        flaw = draw(st.sampled_from(["", "", "", "", *FLAWS]))
        if flaw:
            lines.append(flawed(line, flaw))
        if not flaw or draw(st.booleans()):
            lines.append(line)
    return lines
