"""Compose and Kubernetes files: parsed, hardened, and every command line one that our commands accept."""

import argparse
import importlib
import subprocess
import sys
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from truetail.scenario import loads

ROOT = Path(__file__).parent.parent.parent
OURS = {"master": "truetail.commands.master", "worker": "truetail.commands.worker", "run": "truetail.commands.run"}


def compose():
    return YAML(typ="safe").load((ROOT / "docker-compose.yml").read_text())


def kubernetes():
    return list(YAML(typ="safe").load_all((ROOT / "deploy/kubernetes/truetail.yaml").read_text()))


def containers():
    for document in kubernetes():
        pod = document.get("spec", {}).get("template", {}).get("spec") if isinstance(document.get("spec"), dict) else None
        for container in (pod or {}).get("containers", []):
            yield pod, container


def accepts(command, arguments):
    """Parse a command line as our command would; SystemExit (argparse) for one that it refuses."""
    parser = argparse.ArgumentParser()
    importlib.import_module(OURS[command]).add_arguments(parser)
    return parser.parse_args(
        [
            argument.replace("${SCENARIO:-scenarios/poisson.yaml}", "s.yaml").replace("${WORKERS:-4}", "4")
            for argument in arguments
        ]
    )


def test_compose_services_are_those_of_the_design():
    """Target, master, scalable workers, collector, and a profile with Prometheus and Grafana."""
    services = compose()["services"]
    assert set(services) == {"target", "master", "worker", "collector", "prometheus", "grafana"}
    assert services["prometheus"]["profiles"] == services["grafana"]["profiles"] == ["dashboards"]
    assert "container_name" not in services["worker"]  # or it could not be scaled


@pytest.mark.parametrize("name", ["target", "master", "worker", "collector"])
def test_compose_services_are_hardened(name):
    """Non-root, read-only, no capabilities, bounded; one image for all."""
    service = compose()["services"][name]
    assert service["image"] == "truetail:local"
    assert service["user"].split(":")[0] not in ("0", "root")
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert "memory" in service["deploy"]["resources"]["limits"]
    assert all(str(port).startswith("127.0.0.1:") for port in service.get("ports", []))


def test_compose_waits_for_health():
    """The master waits for a healthy target, the workers for a healthy master."""
    services = compose()["services"]
    assert services["master"]["depends_on"]["target"]["condition"] == "service_healthy"
    assert services["worker"]["depends_on"]["master"]["condition"] == "service_healthy"
    assert "healthcheck" in services["target"]
    assert "healthcheck" in services["master"]


@pytest.mark.parametrize("name", ["master", "worker"])
def test_compose_commands_are_ours(name):
    """The command lines parse."""
    command, *arguments = compose()["services"][name]["command"]
    assert accepts(command, arguments)


@pytest.mark.parametrize(("name", "module"), [("target", "target"), ("collector", "collector")])
def test_compose_commands_of_the_rooms_apart_are_theirs(name, module):
    """Target and collector know every option that is given to them."""
    helped = subprocess.run([sys.executable, "-m", module, "--help"], capture_output=True, text=True, check=True).stdout
    for argument in compose()["services"][name]["command"]:
        if argument.startswith("--"):
            assert argument in helped, argument


def test_kubernetes_scenario_is_valid():
    """The ConfigMap's scenario passes the schema, and asks for as many workers as there are pods."""
    documents = kubernetes()
    scenario = loads(next(d for d in documents if d["kind"] == "ConfigMap")["data"]["scenario.yaml"])
    workers = next(d for d in documents if d["metadata"]["name"] == "truetail-worker")
    assert scenario.resolved()["fleet"]["workers"] == workers["spec"]["completions"] == workers["spec"]["parallelism"]


def test_kubernetes_pods_are_hardened_and_commands_ours():
    """Non-root, read-only root, no privileges; master and worker lines parse; a run is never repeated by itself."""
    for pod, container in containers():
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert container["securityContext"]["capabilities"]["drop"] == ["ALL"]
        command, *arguments = container["args"]
        if command in OURS:
            assert accepts(command, arguments)
    for document in kubernetes():
        if document["kind"] == "Job":
            assert document["spec"]["backoffLimit"] == 0


def test_image_runs_as_an_ordinary_user_from_the_lock_file():
    """The Dockerfile installs the lock file and ends as a user that is not root."""
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    assert any("requirements.lock" in line and line.startswith("RUN") for line in lines)
    assert [line for line in lines if line.startswith("USER")][-1] not in ("USER root", "USER 0")
