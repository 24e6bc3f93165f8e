"""What a scrape asks for in its headers."""

from __future__ import annotations

import pytest

from mx_exporter.http.negotiate import timeout_seconds, wants_gzip, wants_openmetrics

#: What Prometheus 2.42 and 3.x send.
PROMETHEUS_2 = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
PROMETHEUS_3 = (
    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;"
    "q=0.6,application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,"
    "application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;"
    "escaping=allow-utf-8;q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1"
)
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"


@pytest.mark.parametrize(
    ("accept", "openmetrics"),
    [
        ("", False),
        ("*/*", False),
        ("text/*", False),
        (BROWSER, False),
        ("application/json", False),
        ("text/plain", False),
        (PROMETHEUS_2, True),
        (PROMETHEUS_3, True),
        ("application/openmetrics-text", True),
        ("Application/OpenMetrics-Text; Version=1.0.0; charset=utf-8", True),
        ('application/openmetrics-text; version="1.0.0"', True),
        # A version that we do not write is no reason to pretend.
        ("application/openmetrics-text;version=2.0.0", False),
        ("application/openmetrics-text;version=2.0.0,application/openmetrics-text;q=0.1", True),
        # The higher q wins, whoever comes first; equal: OpenMetrics.
        ("application/openmetrics-text;q=0.4, text/plain;q=0.5", False),
        ("text/plain;q=0.4, application/openmetrics-text;q=0.5", True),
        ("text/plain, application/openmetrics-text", True),
        ("application/openmetrics-text;q=0.5, */*", False),
        ("application/openmetrics-text, */*", True),
        ("application/openmetrics-text;q=0.5, text/*;q=0.6", False),
        # The more specific range gives the type's q, also where a vaguer one is higher.
        ("application/openmetrics-text;q=0.5, text/plain;q=0.1, */*;q=0.9", True),
        # q=0 is a refusal.
        ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-text;q=0, text/plain;q=0", False),
        ("text/plain;q=0, application/openmetrics-text;q=0.001", True),
        # Junk elements are left out, the others count.
        ("application/openmetrics-text;q=high, text/plain;q=0.1", False),
        ("application/openmetrics-text;q=nan", False),
        ("application/openmetrics-text;q=2", False),
        (",;,=;q,, application/openmetrics-text", True),
    ],
)
def test_accept(accept: str, openmetrics: bool) -> None:
    assert wants_openmetrics(accept) is openmetrics


@pytest.mark.parametrize(
    ("accept", "zipped"),
    [
        ("", False),
        ("gzip", True),
        ("GZIP", True),
        ("x-gzip", True),
        ("gzip, deflate, br", True),
        ("deflate, br", False),
        ("*", True),
        ("*;q=0", False),
        ("gzip;q=0", False),
        ("gzip;q=0, *", False),
        ("gzip;q=0.5, identity", False),
        ("gzip;q=0.5, identity;q=0.5", True),
        ("gzip;q=0.1, br", True),
        ("identity;q=0", False),
        ("gzip;q=x", False),
    ],
)
def test_accept_encoding(accept: str, zipped: bool) -> None:
    assert wants_gzip(accept) is zipped


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("10", 10.0),
        ("0.5", 0.5),
        (" 10.000000 ", 10.0),
        *((junk, None) for junk in ("", "soon", "nan", "inf", "-1", "0", "1e400", "10, 10")),
    ],
)
def test_scrape_timeout(header: str, seconds: float | None) -> None:
    assert timeout_seconds(header) == seconds
