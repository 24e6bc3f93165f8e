"""The dashboard's panels, in the order of an operator's questions: see ``generate.py``."""

from __future__ import annotations

from typing import NamedTuple

#: Matchers of the dashboard's variables. A label that a set-up does not have, such as a
#: namespace outside of Kubernetes, is matched by "All".
OWN = 'namespace=~"$namespace", node=~"$node", pod=~"$pod"'
SCHEME = f'{OWN}, scheme=~"$scheme"'
LOADS = f'{SCHEME}, engine=~"$engine", model=~"$model"'


def grown(series: str) -> str:
    """How much counters grew within the dashboard's window.

    Not increase(), which sees nothing in a series that is born with its first event and keeps
    that value, as that of a rank's only load does. A counter that is new, or that began again,
    grew by all it holds. Pods that are gone are not in it.
    """
    return f"(({series} - {series} offset $window) >= 0 or {series})"


#: What tells pods apart; outside of Kubernetes the instance alone does.
POD = "namespace, pod, node, instance"


def succeeded(part: str) -> str:
    """``sum`` or ``count`` of the loads that succeeded."""
    return f'mx_load_seconds_{part}{{{LOADS}, outcome="success"}}'


def quantile(q: float, by: str, bucket: str) -> str:
    return f"histogram_quantile({q}, sum by (le, {by}) ({grown(bucket)}))"


def named(series: str) -> str:
    """Loads that are between two phases have an empty one, which no legend shows."""
    return f'label_replace({series}, "phase", "between", "phase", "")'


class Query(NamedTuple):
    expr: str
    legend: str


#: What each panel with a quantile says.
ESTIMATED = (
    "A quantile is an estimate: the histogram knows how many loads each bucket holds, and a value "
    "is taken to lie evenly within its bucket. The log has each duration as it was."
)


class Panel(NamedTuple):
    """A panel. ``width`` is of 24. The description ends with what an empty one means, which is
    also shown in the place of values."""

    title: str
    description: str
    width: int
    queries: list[Query]
    unit: str = "short"
    kind: str = "timeseries"
    stacked: bool = False

    @property
    def empty(self) -> str:
        reason = self.description.partition("Empty: ")[2].removesuffix(".")
        return reason[0].upper() + reason[1:]

    @property
    def text(self) -> str:
        estimated = any("histogram_quantile" in query.expr for query in self.queries)
        return f"{self.description} {ESTIMATED}" if estimated else self.description


class Row(NamedTuple):
    title: str
    panels: list[Panel]


def quantiles(by: str, bucket: str, *qs: float) -> list[Query]:
    return [Query(quantile(q, by, bucket), f"p{q * 100:g} {{{{{by}}}}}") for q in qs]


ROWS = [
    Row(
        "Is it up?",
        [
            Panel(
                "Pods",
                "Exporters that answer, and those of them that have met a header, which a rank "
                "logs as it starts. Empty: nothing is scraped; the monitor selects no pod. "
                "Reporting below exporting: metrics are off in engines, or log and exporter look "
                "at different places.",
                4,
                [
                    Query(f"count(mx_exporter_build_info{{{OWN}}})", "exporting"),
                    # A pod whose ranks have two releases, or two schemes, is one pod.
                    Query(f"count(count by (instance) (mx_build_info{{{SCHEME}}}))", "reporting"),
                ],
                kind="stat",
            ),
            Panel(
                "Releases of the client",
                "Pods by the release of the client that their headers name. Empty: no rank has "
                "logged a header.",
                4,
                [Query(f"count by (version) (mx_build_info{{{SCHEME}}})", "{{version}}")],
                kind="stat",
            ),
            Panel(
                "Ranks",
                "Processes that log (alive) or have logged (gone), of the pods that run. Gone "
                "ones are normal where engines load in a process of their own. Empty: nothing "
                "is scraped.",
                4,
                [Query(f"sum by (state) (mx_exporter_writers{{{OWN}}})", "{{state}}")],
            ),
            Panel(
                "Events not counted, last $window",
                "Lost (they have a number and no line), rejected (a line that is no event), "
                "refused (an impossible value), dropped by a rank, and calls of recorders that no "
                "family answers, misspelt ones perhaps. Anything but zero: the other panels show "
                "too little. Lost ones are all that are missing now. Empty: "
                "nothing is scraped.",
                4,
                [
                    Query(f"sum(mx_exporter_events_lost{{{OWN}}})", "lost"),
                    Query(
                        f"sum({grown(f'mx_exporter_lines_rejected_total{{{OWN}}}')})", "rejected"
                    ),
                    Query(
                        f"sum({grown(f'mx_exporter_observations_refused_total{{{OWN}}}')})",
                        "refused",
                    ),
                    Query(
                        "sum by (reason) "
                        f"({grown(f'mx_emitter_events_dropped_total{{{SCHEME}}}')})",
                        "dropped: {{reason}}",
                    ),
                    Query(
                        "sum("
                        + grown(f"mx_exporter_recorder_calls_unanswered_total{{{OWN}}}")
                        + ")",
                        "unanswered",
                    ),
                ],
            ),
            Panel(
                "Time to read the log",
                "Duration of the latest read of a directory, the slowest exporter and the mean: "
                "milliseconds. Seconds: the exporter is short of CPU, or its directory is full of "
                "small segments. Empty: nothing is scraped.",
                4,
                [
                    Query(f"max(mx_exporter_last_drain_seconds{{{OWN}}})", "slowest"),
                    Query(f"avg(mx_exporter_last_drain_seconds{{{OWN}}})", "mean"),
                ],
                unit="s",
            ),
            Panel(
                "Room that the log takes",
                "Our files in a directory, of the limit at which ranks drop events; the fullest "
                "directory. An exporter that compacts keeps it at half. Empty: nothing is "
                "scraped.",
                4,
                [
                    Query(
                        f"max(mx_exporter_directory_bytes{{{OWN}}} "
                        f"/ mx_exporter_directory_limit_bytes{{{OWN}}})",
                        "fullest",
                    ),
                ],
                unit="percentunit",
            ),
        ],
    ),
    Row(
        "How long do loads take?",
        [
            Panel(
                "Load time, successes, last $window",
                "From the engine's call to the loaded model, as its user waits for it; loads that "
                "ended within the window. Failed ones are left out: they end early and would look "
                "fast. Empty: no load has succeeded in the window.",
                8,
                quantiles(
                    "engine",
                    f'mx_load_seconds_bucket{{{LOADS}, outcome="success"}}',
                    0.5,
                    0.95,
                    0.99,
                ),
                unit="s",
            ),
            Panel(
                "Slowest pods, last $window",
                "Mean time of the loads that succeeded, of the ten pods that took longest, with "
                "their nodes. One node that comes several times: look at the node. Exact, since "
                "it is made of sums. Empty: no load has succeeded in the window.",
                8,
                [
                    Query(
                        f"topk(10, sum by ({POD}) ({grown(succeeded('sum'))}) / "
                        f"(sum by ({POD}) ({grown(succeeded('count'))}) > 0))",
                        "{{pod}} {{node}} {{instance}}",
                    )
                ],
                unit="s",
                kind="bargauge",
            ),
            Panel(
                "Share of each phase, last $window",
                "Of the load time of the window. Phases are disjoint: the widest band is where to "
                "look first. Empty: no load phase has ended in the window.",
                8,
                [
                    Query(
                        f"sum by (phase) ({grown(f'mx_load_phase_seconds_sum{{{LOADS}}}')}) "
                        "/ on () group_left "
                        f"sum({grown(f'mx_load_phase_seconds_sum{{{LOADS}}}')})",
                        "{{phase}}",
                    )
                ],
                unit="percentunit",
                stacked=True,
            ),
            Panel(
                "Loads ended, last $window",
                "Within the window, by outcome. Empty: no load has ended since the pods started.",
                8,
                [
                    Query(
                        f"sum by (outcome) ({grown(f'mx_load_seconds_count{{{LOADS}}}')})",
                        "{{outcome}}",
                    )
                ],
                stacked=True,
            ),
            Panel(
                "Loads in progress",
                "Loads that have started and not ended, by phase, or between two phases. One that "
                "stays is a load that hangs. Empty: no load was started since the "
                "pods did.",
                8,
                [
                    Query(
                        f"sum by (phase) ({named(f'mx_loads_in_progress{{{LOADS}}}')})",
                        "{{phase}}",
                    )
                ],
                stacked=True,
            ),
            Panel(
                "Oldest load in progress",
                "Time since the start of the load that has been in progress for longest, by the "
                "phase that it is in. A line that goes up for as long as no load ever took is a "
                "load that hangs. Empty: no load was started since the pods did.",
                8,
                [
                    Query(
                        "max by (phase) "
                        f"({named(f'mx_exporter_oldest_load_seconds{{{LOADS}}}')})",
                        "{{phase}}",
                    )
                ],
                unit="s",
            ),
        ],
    ),
    Row(
        "Where does the time go?",
        [
            Panel(
                "Source attempt, p95 by phase, last $window",
                "Phases of one attempt at a source. receive moves the weights; a slow register or "
                "handshake is the fabric's set-up. Empty: no load came from a peer.",
                8,
                quantiles(
                    "phase",
                    f'mx_p2p_source_attempt_phase_seconds_bucket{{{SCHEME}, outcome="ok"}}',
                    0.95,
                ),
                unit="s",
            ),
            Panel(
                "Transfer time, p95 by outcome, last $window",
                "A whole attempt without its metadata lookup. retry and fallback show what "
                "failures cost. Empty: no load came from a peer.",
                6,
                quantiles("outcome", f"mx_p2p_transfer_seconds_bucket{{{SCHEME}}}", 0.95),
                unit="s",
            ),
            Panel(
                "Artifact steps, p95, last $window",
                "Installing compile caches: validate grows with the number of files, extract with "
                "bytes. Empty: no artifacts are installed.",
                5,
                quantiles("step", f"mx_artifact_install_step_seconds_bucket{{{SCHEME}}}", 0.95),
                unit="s",
            ),
            Panel(
                "Artifact bytes, last $window",
                "Compile cache archives extracted within the window, by kind. Empty: no artifacts "
                "are installed.",
                5,
                [
                    Query(
                        "sum by (artifact) "
                        f"({grown(f'mx_artifact_install_bytes_total{{{SCHEME}}}')})",
                        "{{artifact}}",
                    )
                ],
                unit="bytes",
                stacked=True,
            ),
        ],
    ),
    Row(
        "Does the selection of peers work?",
        [
            Panel(
                "Candidates, last $window",
                "Mean number of candidates at each stage of the selection. listed at zero: nobody "
                "has published; listed above and the rest at zero: all were filtered out. Empty: "
                "no rank has looked for a peer.",
                6,
                [
                    Query(
                        f"sum by (stage) ({grown(f'mx_p2p_candidates_sum{{{SCHEME}}}')}) / "
                        f"sum by (stage) ({grown(f'mx_p2p_candidates_count{{{SCHEME}}}')})",
                        "{{stage}}",
                    )
                ],
            ),
            Panel(
                "Attempts, last $window",
                "Attempts at a source within the window, by how they ended: transfer_retry went "
                "on to the next source, transfer_fallback gave up on peers. Empty: no rank has "
                "looked for a peer.",
                6,
                [
                    Query(
                        f"sum by (result) ({grown(f'mx_p2p_source_attempts_total{{{SCHEME}}}')})",
                        "{{result}}",
                    )
                ],
                stacked=True,
            ),
            Panel(
                "Listings, last $window",
                "Listings of sources within the window. empty is normal for the first pod of a "
                "deployment; error is the backend's failure. Empty: no rank has looked for a peer.",
                6,
                [
                    Query(
                        f"sum by (result) ({grown(f'mx_p2p_list_sources_total{{{SCHEME}}}')})",
                        "{{result}}",
                    )
                ],
                stacked=True,
            ),
            Panel(
                "Load of the chosen source",
                "What the chosen source published, 0 to 1, at each pod's latest selection. Near 1: "
                "there are too few sources. Empty: sources publish none.",
                6,
                [
                    Query(f"max(mx_p2p_source_load{{{SCHEME}}})", "busiest"),
                    Query(f"avg(mx_p2p_source_load{{{SCHEME}}})", "mean"),
                ],
                unit="percentunit",
            ),
            Panel(
                "Selections, last $window",
                "Sources chosen for a transfer within the window, by policy. Empty: no rank has "
                "looked for a peer.",
                12,
                [
                    Query(
                        f"sum by (policy) ({grown(f'mx_p2p_source_selections_total{{{SCHEME}}}')})",
                        "{{policy}}",
                    )
                ],
            ),
            Panel(
                "Time to order candidates, p95, last $window",
                "Time that the policy takes to put the candidates in order; milliseconds at most. "
                "Empty: no rank had candidates.",
                12,
                quantiles("policy", f"mx_p2p_source_selection_seconds_bucket{{{SCHEME}}}", 0.95),
                unit="s",
            ),
        ],
    ),
    Row(
        "What fails?",
        [
            Panel(
                "Receives that were not complete, last $window",
                "Within the window. partial and empty ones return without an error, so nothing "
                "else shows them; rejected ones raise. Anything but zero deserves a look. Empty: "
                "no rank has started.",
                6,
                [
                    Query(
                        "sum by (result) "
                        + grown(f'mx_nixl_receive_total{{{SCHEME}, result!="complete"}}'),
                        "{{result}}",
                    )
                ],
                stacked=True,
            ),
            Panel(
                "Data-plane errors, last $window",
                "Failures of the transfer library within the window: a timeout, or an error "
                "status. Empty: no rank has started.",
                6,
                [
                    Query(
                        f"sum by (kind) ({grown(f'mx_nixl_data_plane_errors_total{{{SCHEME}}}')})",
                        "{{kind}}",
                    )
                ],
                stacked=True,
            ),
            Panel(
                "Metadata failures, last $window",
                "Lookups of a source's metadata that failed within the window; the next candidate "
                "is tried. Empty: no rank has looked for a peer.",
                6,
                [
                    Query(
                        "sum by (policy) "
                        f"({grown(f'mx_p2p_metadata_lookup_failures_total{{{SCHEME}}}')})",
                        "{{policy}}",
                    )
                ],
            ),
            Panel(
                "Loads abandoned, last $window",
                "Loads whose rank is gone without an end: killed, crashed or out of memory; by "
                "the phase they were in, within the window. Empty: there was none, which is good.",
                6,
                [
                    Query(
                        f"sum by (phase) ({named(grown(f'mx_loads_abandoned_total{{{LOADS}}}'))})",
                        "{{phase}}",
                    )
                ],
                stacked=True,
            ),
        ],
    ),
]
