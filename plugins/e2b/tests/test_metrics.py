"""``/metrics`` of the gateway."""

from __future__ import annotations

import httpx

from plugins.e2b.tests.conftest import KEY, ServedE2B
from tests.support.metrics import scrape


def read(served):
    return scrape(served.url, **{"x-api-key": KEY})


def make(control, **body):
    response = control.post("/v2/sandboxes", json={"templateID": "base", "timeout": 60, **body})
    response.raise_for_status()
    return response.json()["sandboxID"]


def test_metrics_require_the_key(served):
    assert httpx.get(f"{served.url}/metrics").status_code == 401
    bearer = httpx.get(f"{served.url}/metrics", headers={"authorization": f"Bearer {KEY}"})
    assert bearer.headers["content-type"].startswith("text/plain; version=0.0.4")


def test_metrics_count_sandboxes_by_state(served, control):
    before = read(served)
    first, second = make(control), make(control)
    (fork,) = control.post(f"/sandboxes/{first}/fork", json={"count": 1}).json()
    control.post(f"/sandboxes/{second}/pause", json={}).raise_for_status()
    now = read(served)
    assert (
        now.value("coding_gym_e2b_sandboxes", state="running") - before.value("coding_gym_e2b_sandboxes", state="running") == 2
    )
    assert now.value("coding_gym_e2b_sandboxes", state="paused") - before.value("coding_gym_e2b_sandboxes", state="paused") == 1
    assert (
        now.value("coding_gym_e2b_created_total", origin="template")
        - before.value("coding_gym_e2b_created_total", origin="template")
        == 2
    )
    assert (
        now.value("coding_gym_e2b_created_total", origin="fork") - before.value("coding_gym_e2b_created_total", origin="fork")
        == 1
    )
    assert now.value("coding_gym_e2b_places", state="used") - before.value("coding_gym_e2b_places", state="used") == 2
    assert now.value("coding_gym_e2b_places") == before.value("coding_gym_e2b_places")
    assert now.value("coding_gym_e2b_forks") - before.value("coding_gym_e2b_forks") == 1
    assert now.value("coding_gym_e2b_hosts", kind="shared") == 1
    for sandbox in (first, second, fork["sandbox"]["sandboxID"]):
        control.delete(f"/sandboxes/{sandbox}").raise_for_status()
    after = read(served)
    assert (
        after.value("coding_gym_e2b_ended_total", reason="killed") - before.value("coding_gym_e2b_ended_total", reason="killed")
        == 3
    )
    assert after.value("coding_gym_e2b_sandboxes") == before.value("coding_gym_e2b_sandboxes")


def test_metrics_count_refused_and_expired_sandboxes(tmp_path):
    small = ServedE2B(tmp_path, "--provider", "local", "--sessions", "1", "--hosts", "1")
    try:
        with httpx.Client(base_url=small.url, headers={"x-api-key": KEY}, timeout=60) as control:
            sandbox = make(control)
            refused = control.post("/v2/sandboxes", json={"templateID": "base"})
            assert refused.status_code == 429
            now = read(small)
            assert now.value("coding_gym_e2b_refused_total", status="429") == 1
            assert now.value("coding_gym_e2b_places", state="free") == 0
            assert now.value("coding_gym_e2b_hosts_limit") == now.value("coding_gym_e2b_hosts") == 1
            control.post(f"/sandboxes/{sandbox}/timeout", json={"timeout": 0}).raise_for_status()
            assert control.get(f"/sandboxes/{sandbox}").status_code == 404
            assert read(small).value("coding_gym_e2b_ended_total", reason="expired") == 1
            assert read(small).value("coding_gym_e2b_create_duration_seconds_count") == 1
    finally:
        assert small.stop() == 0
