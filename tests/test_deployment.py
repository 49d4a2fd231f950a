"""What is deployed fits what there is: commands and options, ports and paths, limits, metrics, variables.

None of this needs a container engine. The health check is run against the real service.
"""

from __future__ import annotations

import ast
import configparser
import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import fields
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml  # type: ignore[import-untyped]  # it ships no types

from pointsman.cli.core_commands import app
from pointsman.embedders.e5.prepared_files import ENVIRONMENT_VARIABLE
from pointsman.integrations.mcp import PATH
from pointsman.selector.route_counts import RouteCounts
from pointsman.service.server.app import create_app
from pointsman.service.server.protocol.request_body import _INGEST
from pointsman.service.server.protocol.request_limits import Limits
from pointsman.service.server.run import GRACE
from pointsman.service.server.service_metrics import Metrics
from pointsman.values.setting_sources import CONFIG_VARIABLE, PREFIX
from pointsman.values.settings import Settings
from server_kit import Served

ROOT = Path(__file__).parents[1]
DOCKERFILE = (ROOT / "Dockerfile").read_text("utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text("utf-8"))
UNIT_TEXT = (ROOT / "deploy" / "pointsman.service").read_text("utf-8")
NGINX = (ROOT / "deploy" / "nginx.conf").read_text("utf-8")
PAGE = (ROOT / "docs" / "deployment.md").read_text("utf-8")
MCP_PAGE = (ROOT / "docs" / "mcp.md").read_text("utf-8")


def check(arguments: list[str]) -> dict[str, Any]:
    """What the command line makes of these arguments; raises what it would say."""
    command: Any = typer.main.get_command(app)
    remaining = list(arguments)
    while hasattr(command, "commands"):
        assert remaining, f"'pointsman {' '.join(arguments)}' names no command"
        name = remaining.pop(0)
        assert name in command.commands, f"there is no command {name!r}: pointsman {' '.join(arguments)}"
        command = command.commands[name]
    parameters: dict[str, Any] = command.make_context(command.name, remaining).params
    return parameters


def instructions() -> Iterator[tuple[str, str]]:
    lines = [line for line in DOCKERFILE.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        name, _, value = line.strip().partition(" ")
        yield name, re.sub(r"\s+", " ", value.strip())


def instruction_values(name: str) -> list[str]:
    return [value for instruction, value in instructions() if instruction == name]


@pytest.fixture(scope="module")
def unit() -> dict[str, dict[str, list[str]]]:
    """The unit's sections: names with all their values, as systemd lets a name be given again."""
    sections: dict[str, dict[str, list[str]]] = {}
    current: dict[str, list[str]] = {}
    for line in UNIT_TEXT.splitlines():
        if line.startswith("["):
            current = sections[line.strip("[]")] = defaultdict(list)
        elif line and not line.startswith("#"):
            name, equals, value = line.partition("=")
            assert equals, line
            current[name].append(value)
    return sections


# ── commands ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def commands_in(page: str) -> Iterator[str]:
    """Calls of the command line in examples, whatever they are started by."""
    for block in re.findall(r"^```sh\n(.*?)^```", page, re.DOTALL | re.MULTILINE):
        for line in block.splitlines():
            compose = re.match(r"docker compose run (?:--\S+ (?:\S+:\S+ )?)*(?P<service>\w+) (?P<rest>.*)", line)
            if compose is not None:
                service = COMPOSE["services"][compose["service"]]
                entry = service.get("entrypoint", ["pointsman"])
                yield shlex.join([*entry[1:], *shlex.split(compose["rest"])])
            elif match := re.match(r"(?:sudo -u pointsman )?(?:/opt/pointsman/bin/)?pointsman (?P<rest>.*)", line):
                yield match["rest"]


@pytest.mark.parametrize("line", sorted({*commands_in(PAGE), *commands_in(MCP_PAGE)}))
def test_commands_of_the_pages_exist(line: str) -> None:
    check(shlex.split(line))


def test_pages_show_commands_at_all() -> None:
    commands = " ".join([*commands_in(PAGE), *commands_in(MCP_PAGE)])
    for name in ("keys create", "keys revoke", "backup", "restore", "verify", "mcp --http"):
        assert name in commands


def test_the_configuration_of_an_agent_is_one() -> None:
    block = re.search(r"^```json\n(.*?)^```", MCP_PAGE, re.DOTALL | re.MULTILINE)
    assert block is not None
    server = json.loads(block[1])["mcpServers"]["pointsman"]
    assert server["command"].endswith("/pointsman")
    assert check(server["args"])["http"] is False


def test_options_that_the_pages_name_exist() -> None:
    parameters = [parameter for command in walk(typer.main.get_command(app)) for parameter in command.params]
    options = {option for parameter in parameters for option in (*parameter.opts, *parameter.secondary_opts)}
    for page in (PAGE, MCP_PAGE):
        named = set(re.findall(r"`(--[a-z-]+)", page))
        assert named
        assert named <= options


def walk(command: Any) -> Iterator[Any]:
    yield command
    for inner in getattr(command, "commands", {}).values():
        yield from walk(inner)


# ── the image ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_image_runs_as_nobody_and_without_a_shell() -> None:
    last = [*instructions()][[name for name, _ in instructions()].index("FROM", 1) :]
    settings = dict(last)
    assert settings["USER"] == "10001:10001"
    assert "10001" in settings["RUN"], "the user is made with that number"
    assert settings["STOPSIGNAL"] == "SIGTERM"
    for name, value in instructions():
        if name in {"RUN", "CMD", "ENTRYPOINT"} or (name == "HEALTHCHECK" and "CMD" in value):
            assert isinstance(json.loads(value.partition("CMD ")[2] if name == "HEALTHCHECK" else value), list), value
    assert not any("curl" in value or "apt" in value for _, value in instructions())


def test_its_base_is_pinned_and_the_same_in_both_stages() -> None:
    bases = {value.split()[0] for value in instruction_values("FROM")}
    assert len(instruction_values("FROM")) == 2
    assert len(bases) == 1
    assert re.fullmatch(r"python:3\.\d+-slim-[a-z]+", bases.pop())


def test_what_is_copied_is_there_and_not_ignored() -> None:
    rules = [line for line in (ROOT / ".dockerignore").read_text("utf-8").splitlines() if line and line[0] != "#"]
    sources = [source for value in instruction_values("COPY") if "--from" not in value for source in value.split()[:-1]]
    assert {"pyproject.toml", "src"} <= set(sources)
    for source in sources:
        assert (ROOT / source).exists(), source
        is_ignored = False
        for rule in rules:
            if fnmatch(source, rule.lstrip("!")):
                is_ignored = not rule.startswith("!")
        assert not is_ignored, source
    assert rules[0] == "*", "nothing is sent to the builder that is not named"
    assert {rule[1:] for rule in rules if rule.startswith("!")} == set(sources)


def test_the_extras_and_the_python_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    for text in (DOCKERFILE, UNIT_TEXT, PAGE):
        named = re.findall(r"(?:\.|pointsman)\[([a-z,]+)\]", text)
        assert named
        for extras in named:
            assert set(extras.split(",")) <= set(project["optional-dependencies"])
    version = re.search(r"python:(3\.\d+)", DOCKERFILE)
    assert version is not None
    assert f"Programming Language :: Python :: {version[1]}" in project["classifiers"]


def test_the_embedder_is_prepared_where_it_is_looked_for() -> None:
    environments = [dict(re.findall(r"(\w+)=(\S+)", value)) for value in instruction_values("ENV")]
    assert [environment[ENVIRONMENT_VARIABLE] for environment in environments] == ["/data/cache", "/data/cache"]
    assert environments[1]["POINTSMAN_WORKSPACE"].startswith("/data/")
    assert environments[1]["ORT_DISABLE_TELEMETRY"] == "1"
    step = next(json.loads(value) for value in instruction_values("RUN") if "default_embedder" in value)
    ast.parse(step[-1])
    assert instruction_values("VOLUME") == ["/data"]
    assert instruction_values("COPY")[-1].endswith("/data /data")


# ── ports, paths, commands ───────────────────────────────────────────────────────────────────────────────────────────


def test_ports_and_paths_agree(unit: dict[str, dict[str, list[str]]]) -> None:
    entry, command = (json.loads(instruction_values(name)[-1]) for name in ("ENTRYPOINT", "CMD"))
    image = check([*entry[1:], *command])
    assert instruction_values("EXPOSE") == [str(image["port"])]
    assert f":{image['port']}/ready" in instruction_values("HEALTHCHECK")[0]
    services = COMPOSE["services"]
    service_options, agents = check(services["pointsman"]["command"]), check(services["mcp"]["command"])
    for service, options in ((services["pointsman"], service_options), (services["mcp"], agents)):
        assert service["ports"] == [f"127.0.0.1:{options['port']}:{options['port']}"]
        assert f":{options['port']}/" in service["healthcheck"]["test"][-1]
        assert "data:/data" in service["volumes"]
        assert options["host"] == "0.0.0.0"
    assert service_options["port"] == image["port"]
    check([*services["keys"]["entrypoint"][1:], *services["keys"]["command"]])
    started = shlex.split(unit["Service"]["ExecStart"][0])
    options = check(started[1:])
    assert options["host"] == "127.0.0.1"
    assert f"server 127.0.0.1:{options['port']};" in NGINX
    assert f"server 127.0.0.1:{agents['port']};" in NGINX
    assert f"location = {PATH} " in NGINX
    for path in (
        started[0],
        "/opt/pointsman",
        "/var/lib/pointsman/workspace",
        "deploy/pointsman.service",
    ):
        assert path in PAGE
    assert f"127.0.0.1:{image['port']}" in PAGE


def test_variables_mean_something(unit: dict[str, dict[str, list[str]]]) -> None:
    variables = {f"{PREFIX}{field.name.upper()}" for field in fields(Settings)}
    variables |= {CONFIG_VARIABLE, ENVIRONMENT_VARIABLE, "POINTSMAN_HOST"}  # the last is of compose.yaml
    for name in (
        "Dockerfile",
        "compose.yaml",
        "deploy/pointsman.service",
        "docs/deployment.md",
        "docs/mcp.md",
    ):
        for variable in re.findall(r"POINTSMAN_[A-Z0-9_]+", (ROOT / name).read_text("utf-8")):
            assert variable in variables or variable == "POINTSMAN_", f"{name}: {variable}"
    assert "${POINTSMAN_HOST:-localhost}" in COMPOSE["services"]["pointsman"]["command"]


def test_the_composition_gives_away_nothing() -> None:
    for name, service in COMPOSE["services"].items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["user"] == "10001:10001", name
        assert service["mem_limit"], name
        assert service["pids_limit"], name
        assert all(mount.startswith("/tmp:") for mount in service["tmpfs"]), name
        assert not {"privileged", "cap_add", "devices", "pid", "ipc"} & service.keys(), name
    assert COMPOSE["services"]["keys"]["network_mode"] == "none"
    assert COMPOSE["volumes"] == {"data": None}


def test_there_is_time_to_stop(unit: dict[str, dict[str, list[str]]]) -> None:
    service = unit["Service"]
    assert int(service["TimeoutStopSec"][0]) > GRACE
    for name in ("pointsman", "mcp"):
        assert int(COMPOSE["services"][name]["stop_grace_period"].removesuffix("s")) > GRACE
    assert f"up to {GRACE} s" in PAGE
    assert service["Restart"] == ["on-failure"]
    assert service["RestartPreventExitStatus"] == ["2"]


def test_the_unit_is_hardened(unit: dict[str, dict[str, list[str]]]) -> None:
    service = unit["Service"]
    hardening = {
        "User": "pointsman",
        "NoNewPrivileges": "yes",
        "ProtectSystem": "strict",
        "ProtectHome": "yes",
        "PrivateTmp": "yes",
        "StateDirectory": "pointsman",
        "CapabilityBoundingSet": "",
        "UMask": "0077",
    }
    assert {name: service[name][-1] for name in hardening} == hardening
    assert service["SystemCallFilter"] == ["@system-service", "~@privileged @resources"]
    environment = dict(line.split("=", 1) for line in service["Environment"])
    assert environment["POINTSMAN_WORKSPACE"].startswith("/var/lib/pointsman/")
    assert environment["ORT_DISABLE_TELEMETRY"] == "1"
    assert environment[ENVIRONMENT_VARIABLE] == "/var/cache/pointsman"
    parser = configparser.RawConfigParser(strict=False)
    parser.read_string(UNIT_TEXT)
    assert parser.sections() == ["Unit", "Service", "Install"]


# ── the proxy ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_proxy_lets_through_what_the_service_takes() -> None:
    limits = Limits()
    assert "client_max_body_size 1m;" in NGINX
    assert limits.max_body_bytes <= 1024 * 1024
    headers = re.search(r"large_client_header_buffers 4 (\d+)k;", NGINX)
    assert headers is not None
    assert int(headers[1]) * 1024 >= limits.max_url_bytes + 1000
    locations = dict(re.findall(r"location (?:[=~] )?(\S+) \{\n(.*?)\n    \}", NGINX, re.DOTALL))
    stream, ingest = locations["/api/stream"], locations["^/api/datasets/[^/]+/documents$"]
    assert "proxy_buffering off;" in stream
    for directive in ("client_max_body_size 0;", "proxy_request_buffering off;", "proxy_buffering off;"):
        assert directive in ingest
    assert "return 404;" in locations["/metrics"]
    assert _INGEST.fullmatch("/api/datasets/faq/documents")
    assert re.fullmatch("^/api/datasets/[^/]+/documents$", "/api/datasets/faq/documents")
    assert NGINX.count("{") == NGINX.count("}")
    for header in ("Host $host", "X-Forwarded-For", "X-Request-Id"):
        assert f"proxy_set_header {header}" in NGINX
    assert "ssl_protocols TLSv1.2 TLSv1.3;" in NGINX


def test_paths_of_the_proxy_and_the_pages_are_routes(tmp_path: Path) -> None:
    import pointsman
    from pointsman.embedders.scripted_embedders import HashingEmbedder

    with pointsman.Workspace(tmp_path / "workspace", embedder=HashingEmbedder()) as workspace:
        description = inner(create_app(workspace)).openapi()
    paths = {re.sub(r"\{\w+\}", "NAME", path) for path in description["paths"]} | {PATH}
    for path in ("/api/stream", "/api/datasets/NAME/documents", "/metrics", "/health", "/ready", "/api/me"):
        assert path in paths
        assert path in PAGE
    for path in re.findall(r"`(/(?:api|mcp|health|ready|metrics)[\w/]*)`", PAGE):
        assert path in paths, path


def inner(layer: Any) -> Any:
    """The application within its layers."""
    while hasattr(layer, "_app"):
        layer = layer._app
    return layer


# ── limits and metrics ───────────────────────────────────────────────────────────────────────────────────────────────


def rows(name: str) -> list[list[str]]:
    section = re.search(rf"<!-- {name} -->\n(.*?)<!-- /{name} -->", PAGE, re.DOTALL)
    assert section is not None
    lines = section[1].strip().splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_the_limits_are_those_of_the_service() -> None:
    def spell(value: float | None) -> str:
        return "none" if value is None else f"{value:,g}" if isinstance(value, float) else f"{value:,}"

    assert [(row[0].strip("`"), row[1]) for row in rows("limits")] == [
        (field.name, spell(getattr(Limits(), field.name))) for field in fields(Limits)
    ]
    for field in fields(Limits):
        value = 5 if field.name != "body_seconds" else 5.0
        assert check(["serve", "--limit", f"{field.name}={value}"])["limit"]


def test_the_metrics_are_those_of_the_service() -> None:
    registry = Metrics(RouteCounts()).registry
    metrics = {
        metric.name + ("_total" if metric.type == "counter" else ""): metric
        for metric in registry.collect()
        if metric.name.startswith("pointsman_")
    }
    descriptions = {row[0].strip("`"): row[1] for row in rows("metrics")}
    assert descriptions.keys() == metrics.keys()
    collectors = {name: collector for collector, names in registry._collector_to_names.items() for name in names}
    for name, labels in descriptions.items():
        collector: Any = collectors.get(name, metrics[name])  # a metric that is counted elsewhere has its own labels
        assert [label for label in labels.split(", ") if label] == list(collector._labelnames), name
    names = set(re.findall(r"`((?:pointsman|process)_[a-z_]+)`", PAGE)) - set(descriptions)
    assert names <= {metric.name for metric in registry.collect()}


# ── the health check ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_health_checks_are_one_and_work(tmp_path: Path) -> None:
    image = json.loads(instruction_values("HEALTHCHECK")[0].partition("CMD ")[2])
    compose_check = COMPOSE["services"]["pointsman"]["healthcheck"]["test"]
    assert compose_check == ["CMD", *image]
    assert image[:2] == ["python", "-c"]

    def healthy(port: int) -> bool:
        code = image[2].replace(":8080/", f":{port}/")
        environment = {"http_proxy": "http://127.0.0.1:9"}  # one that is set for the outside is not used
        process = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment, check=False)
        return process.returncode == 0

    with Served(tmp_path / "workspace") as service:
        service.ready()
        assert healthy(service.port)
        service.stop()
        assert not healthy(service.port)
