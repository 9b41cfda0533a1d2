"""Dashboard, scrape configuration, alerts and documentation name metrics that exist."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from pathlib import Path

import httpx
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from coding_gym import SandboxConfig, SandboxPool
from coding_gym.metrics import PoolCollector
from coding_gym_e2b.gateway import Gateway
from coding_gym_e2b.settings import GatewaySettings
from tests.support.metrics import Scraped, scrape
from tests.support.requirements import import_extra
from tests.support.running_server import RunningServer

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[2]
MONITORING = ROOT / "deploy" / "monitoring"
DASHBOARD = json.loads((MONITORING / "grafana-dashboard.json").read_text())
ALERTS = [rule for group in yaml.safe_load((MONITORING / "alerts.yml").read_text())["groups"] for rule in group["rules"]]
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
TARGETS = [target for panel in PANELS for target in panel["targets"]]
CONTAINER_ONLY = {"coding_gym_memory_limit_bytes"}
"""Metrics of containers with a memory limit, which a server of this machine may lack."""

_NAME = re.compile(r"\b(?:coding_gym|process)_[a-z0-9_]+")
_GROUPING = re.compile(r"\bby \(([^)]*)\)")
_TABLE_ROW = re.compile(r"^\| `(\w+)` \| (gauge|counter|histogram) \| ((?:`\w+`(?:, )?)*) ?\|", re.MULTILINE)


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Scraped:
    with RunningServer(tmp_path_factory.mktemp("server")) as server:
        return scrape(server.url)


@pytest.fixture(scope="module")
def pool() -> Scraped:
    pool = SandboxPool(size=1, provider="local")
    registry = CollectorRegistry()
    registry.register(PoolCollector(pool))
    scraped = Scraped(text_string_to_metric_families(generate_latest(registry).decode()))
    pool.close()
    return scraped


@pytest.fixture(scope="module")
def gateway() -> Scraped:
    async def read() -> str:
        gateway = Gateway(GatewaySettings(config=SandboxConfig(provider="local", sessions=2)))
        transport = httpx.ASGITransport(gateway.app)
        try:
            async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
                return (await client.get("/metrics")).text
        finally:
            await gateway.close()

    return Scraped(text_string_to_metric_families(asyncio.run(read())))


@pytest.fixture(scope="module")
def every(server, pool, gateway) -> Scraped:
    return Scraped([*server.families.values(), *pool.families.values(), *gateway.families.values()])


def labels_of(scraped, sample):
    return {
        label
        for family in scraped.families.values()
        for found in family.samples
        if found.name == sample
        for label in found.labels
    }


def check(expression, scraped):
    """Assert that an expression names metrics that exist, and labels that they have."""
    names = set(_NAME.findall(expression))
    assert names, expression
    assert names <= scraped.samples | CONTAINER_ONLY, expression
    known = set().union(*(labels_of(scraped, name) for name in names)) | {"job", "instance"}
    for grouping in _GROUPING.findall(expression):
        assert {label.strip() for label in grouping.split(",")} <= known, expression


def test_grafana_loads_the_dashboard():
    model = import_extra("grafana_foundation_sdk.models.dashboard")
    plugins = import_extra("grafana_foundation_sdk.cog.plugins")
    encoder = import_extra("grafana_foundation_sdk.cog.encoder")
    # Otherwise options and queries are accepted as they are.
    plugins.register_default_plugins()
    loaded = json.loads(encoder.JSONEncoder().encode(model.Dashboard.from_json(DASHBOARD)))
    # Grafana's types leave out what they do not know, and add defaults.
    assert differences(DASHBOARD, loaded) == []


def differences(written, loaded, path=""):
    """Return the paths of the values that are missing or other when the dashboard is loaded."""
    if isinstance(written, dict) and isinstance(loaded, dict):
        return [
            found
            for key, value in written.items()
            for found in (differences(value, loaded[key], f"{path}/{key}") if key in loaded else [f"{path}/{key}"])
        ]
    if isinstance(written, list) and isinstance(loaded, list) and len(written) == len(loaded):
        pairs = enumerate(zip(written, loaded, strict=True))
        return [found for at, (value, other) in pairs for found in differences(value, other, f"{path}/{at}")]
    return [] if written == loaded else [path]


def test_expressions_are_valid_promql():
    promql = import_extra("promql_parser")
    for expressed in (*TARGETS, *ALERTS):
        promql.parse(expressed["expr"].replace("$__rate_interval", "5m"))


def test_dashboard_names_metrics_that_exist(every):
    assert len(TARGETS) > 50
    for target in TARGETS:
        check(target["expr"], every)


def test_dashboard_shows_every_metric(every):
    shown = set().union(*(_NAME.findall(target["expr"]) for target in TARGETS))
    own = {
        name for name in every.samples if name.startswith("coding_gym_") and not name.endswith(("_sum", "_count", "_created"))
    }
    assert own - shown == {"coding_gym_e2b_gateway_info"}


def test_legends_name_labels_of_the_expression():
    for target in TARGETS:
        grouped = {label.strip() for grouping in _GROUPING.findall(target["expr"]) for label in grouping.split(",")}
        assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= grouped, target


def test_panels_do_not_overlap():
    def cells(panel):
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        return set(itertools.product(range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"])))

    occupied = [cells(panel) for panel in DASHBOARD["panels"]]
    assert sum(map(len, occupied)) == len(set().union(*occupied))


def test_panels_have_ids_titles_and_a_data_source_that_is_chosen():
    variables = {variable["name"]: variable for variable in DASHBOARD["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    assert variables["datasource"]["query"] == "prometheus"
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    for panel in PANELS:
        assert panel["title"]
        for part in (panel, *panel["targets"]):
            assert part["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    used = set(re.findall(r"\$\{?(\w+)\}?", json.dumps(DASHBOARD["panels"]))) - {"__rate_interval"}
    assert used <= set(variables)


def test_alerts_name_metrics_that_exist(every):
    assert len({rule["alert"] for rule in ALERTS}) == len(ALERTS) >= 5
    for rule in ALERTS:
        check(rule["expr"], every)
        assert rule["annotations"]["summary"]


def test_scrape_configuration_reads_the_default_ports_and_paths():
    configuration = yaml.safe_load((MONITORING / "prometheus.yml").read_text())
    assert [MONITORING / name for name in configuration["rule_files"]] == [MONITORING / "alerts.yml"]
    jobs = {job["job_name"]: job for job in configuration["scrape_configs"]}
    assert all("metrics_path" not in job for job in jobs.values())
    assert jobs["coding-gym"]["static_configs"] == [{"targets": ["127.0.0.1:8000"]}]
    assert jobs["coding-gym-pools"]["static_configs"] == [{"targets": ["127.0.0.1:9464"]}]
    assert "authorization" not in jobs["coding-gym-pools"]


def test_scrape_configuration_selects_the_pods():
    pod = yaml.safe_load((ROOT / "deploy/kubernetes/base/deployment.yaml").read_text())["spec"]["template"]["metadata"]
    (job,) = yaml.safe_load((MONITORING / "prometheus-kubernetes.yml").read_text())["scrape_configs"]
    (keep,) = [rule for rule in job["relabel_configs"] if rule.get("action") == "keep"]
    (label,) = keep["source_labels"]
    assert pod["labels"][label.removeprefix("__meta_kubernetes_pod_label_")] == keep["regex"]


@pytest.mark.parametrize("section", ["server", "pool", "e2b"])
def test_documentation_lists_every_metric(section, server, pool, gateway):
    scraped = {"server": server, "pool": pool, "e2b": gateway}[section]
    text = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")
    table = text.partition(f"<!-- metrics: {section} -->")[2].partition("<!--")[0]
    told = {f"coding_gym_{name}": (kind, set(re.findall(r"\w+", labels))) for name, kind, labels in _TABLE_ROW.findall(table)}
    assert len(told) == table.count("\n| `")
    found = {
        name: (family.type, {label for sample in family.samples for label in sample.labels} - {"le"})
        for name, family in scraped.families.items()
        if name.startswith("coding_gym_")
    }
    for name in CONTAINER_ONLY & set(told):
        found.setdefault(name, told[name])
    assert told == found
