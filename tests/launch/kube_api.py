"""A Kubernetes API server of one node on loopback, as far as NeMo-Run and kubectl ask one, and the pods of its jobs.

Kept: TrainJobs as they were posted. Run: each pod as a process of this machine, started with the container's
command and environment as the kubelet gives them (`expanded`), with the PET_* variables of Kubeflow's torch runtime; the
host name of a job's first pod is this machine. What is asked for and not known here is answered with 404 and kept in
`unknown`.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qs, urlparse

import psutil

from tests.helpers import ports

GROUP = "/apis/trainer.kubeflow.org/v1alpha1"
_JOB = re.compile(rf"{GROUP}/namespaces/[^/]+/trainjobs(?:/([^/]+))?")
_PODS = re.compile(r"/api/v1/namespaces/([^/]+)/pods(?:/([^/]+)(/log)?)?")
Json = dict[str, Any]


def expanded(text: str, variables: dict[str, str]) -> str:
    """A word of a container's command as the kubelet gives it to the process.

    ``$(NAME)`` is the variable where there is one and stays else; ``$$`` is one dollar (Kubernetes' reference of
    Container.command; third_party/forked/golang/expansion/expand.go reads from left to right, as this does).
    """
    out, at = "", 0
    while at < len(text):
        after = text[at + 1 : at + 2]
        end = text.find(")", at)
        if text[at] == "$" and after == "$":
            out, at = out + "$", at + 2
        elif text[at] == "$" and after == "(" and end > 0:
            name = text[at + 2 : end]
            out, at = out + variables.get(name, text[at : end + 1]), end + 1
        else:
            out, at = out + text[at], at + 1
    return out


class Pod:
    """One process that runs a container's command."""

    def __init__(self, job: str, rank: int, container: Json, port: int, secrets: Json, image: Json) -> None:
        self.name, self.job, self.rank = f"{job}-node-0-{rank}-abcde", job, rank
        variables = {e["name"]: _value(e, secrets, rank) for e in container.get("env", [])}
        hosts = {f"{job}-node-0-0.{job}": "127.0.0.1"}
        variables["PET_MASTER_ADDR"] = hosts[variables["PET_MASTER_ADDR"]]
        variables["PET_MASTER_PORT"] = str(port)  # pods of a real cluster have ports of their own
        words = [expanded(word, variables) for word in container["command"]]
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        image = {"PATH": path, "HOME": os.environ.get("HOME", "/")} | image
        self.folder = Path(tempfile.mkdtemp(prefix=f"{self.name}-"))
        image |= {"TMPDIR": str(self.folder)}  # a container's /tmp goes with it
        self.log = self.folder / "log"
        self.words, self.environment = words, image | variables
        self.process: subprocess.Popen[bytes] | None = None
        self.started = datetime.now(UTC)
        self.held = ""
        """Why it does not start."""

    def start(self) -> None:
        self.started = datetime.now(UTC)
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(self.words, env=self.environment, stdout=out, stderr=out,
                                            stdin=subprocess.DEVNULL, start_new_session=True)  # fmt: skip
        self.held = ""

    @property
    def code(self) -> int | None:
        """How it ended; None of one that waits or runs."""
        return self.process.poll() if self.process else None

    def stop(self) -> None:
        """As a container ends: with all that runs in it, torchrun's ranks too, which have sessions of their own."""
        if self.process and self.process.poll() is None:
            for process in psutil.Process(self.process.pid).children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            self.process.kill()
            self.process.wait()

    def to_json(self, namespace: str) -> Json:
        code = self.code
        labels = {
            "jobset.sigs.k8s.io/jobset-name": self.job,
            "batch.kubernetes.io/job-completion-index": str(self.rank),
        }
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": self.name, "namespace": namespace, "labels": labels},
            "spec": {"containers": [{"name": "node", "image": "x"}], "nodeName": "n0"},
            "status": self._waits() if self.held else {"phase": _PHASES.get(code, "Failed")},
        }

    def _waits(self) -> Json:
        waiting = {"reason": self.held, "message": "as the test wants"}
        container = {"name": "node", "ready": False, "restartCount": 0, "image": "x", "imageID": ""}
        return {"phase": "Pending", "containerStatuses": [{**container, "state": {"waiting": waiting}}]}


_PHASES = {None: "Running", 0: "Succeeded"}


def _value(entry: Json, secrets: Json, rank: int) -> str:
    source = entry.get("valueFrom", {})
    if ref := source.get("secretKeyRef"):
        return secrets[ref["name"]][ref["key"]]
    if source:
        assert source == {"fieldRef": {"fieldPath": _INDEX}}, source
        return str(rank)
    return entry["value"]


_INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
"""Where Kubernetes writes the index of a pod of an Indexed job (its reference of the Downward API)."""


def _pods_of(body: Json) -> tuple[int, Json]:
    """How many pods a job has, and the container of each."""
    name, spec = body["metadata"]["name"], body["spec"]
    trainer = spec["trainer"]
    pet = {"NNODES": trainer["numNodes"], "NPROC_PER_NODE": trainer["numProcPerNode"], "MASTER_PORT": 29500,
           "MASTER_ADDR": f"{name}-node-0-0.{name}"}  # fmt: skip
    env = [{"name": f"PET_{key}", "value": str(value)} for key, value in pet.items()]
    index = {"name": "PET_NODE_RANK", "valueFrom": {"fieldRef": {"fieldPath": _INDEX}}}
    return trainer["numNodes"], {**trainer, "env": [*trainer.get("env", []), *env, index]}


class Api:
    """The server; `url` is where it listens. Use as a context, which ends its pods too."""

    def __init__(self, nodes: list[Json] | None = None, secrets: dict[str, dict[str, str]] | None = None) -> None:
        self.jobs: dict[str, Json] = {}
        self.pods: dict[str, list[Pod]] = {}
        self.posted: list[Json] = []
        self.deleted: list[str] = []
        self.unknown: list[str] = []
        self.asked: list[str] = []
        """Paths of every question, in their order."""
        self.nodes, self.secrets = nodes or [], secrets or {}
        self.defines_trainjobs = True
        self.refuse: str | None = None
        """What TrainJobs are refused with, as an admission webhook does."""
        self.room = threading.Semaphore(0)
        """How many are taken nevertheless."""
        self.hold = ""
        """Why no pod starts, as a container's waiting state has it; `release` starts them."""
        self.answers = threading.Event()
        """Cleared, a TrainJob is taken and its poster hears nothing of it."""
        self.answers.set()
        self.forgets = False
        """Whether pods that have ended are removed."""
        self.image: dict[str, str] = {}
        """Variables of the container's image."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        for pod in (p for pods in self.pods.values() for p in pods):
            pod.stop()
            shutil.rmtree(pod.folder, ignore_errors=True)
        self._server.shutdown()
        self._server.server_close()

    def kubeconfig(self, folder: Path, context: str = "test") -> Path:
        """A kubeconfig whose current context is this server."""
        file = folder / "kubeconfig"
        both = {"name": context}
        data = {
            "apiVersion": "v1", "kind": "Config", "clusters": [{**both, "cluster": {"server": self.url}}],
            "users": [{**both, "user": {}}],
            "contexts": [{**both, "context": {"cluster": context, "user": context}}], "current-context": context,
        }  # fmt: skip
        file.write_text(json.dumps(data))
        return file

    # ------------------------------------------------------------ what is asked

    def post(self, path: str, body: Json) -> tuple[int, Json]:
        found = _JOB.fullmatch(path)
        if not found or body["kind"] != "TrainJob":
            return self._not_found(path)
        if self.refuse and not self.room.acquire(blocking=False):
            return 422, _status(422, "Invalid", self.refuse)
        name = body["metadata"]["name"]
        if name in self.jobs:
            return 409, _status(409, "AlreadyExists", name)
        port = ports.kept()
        count, container = _pods_of(body)
        pods = [Pod(name, rank, container, port, self.secrets, {**self.image}) for rank in range(count)]
        for pod in pods:
            pod.held = self.hold
        self.pods[name], self.jobs[name] = pods, body
        if not self.hold:
            self.release()
        self.posted.append(body)  # at last: who sees it asks for its pods
        self.answers.wait()
        return 201, body

    def release(self, count: int | None = None) -> None:
        """Starts pods that are held, or so many of them."""
        self.hold = ""
        waiting = [pod for name in self.jobs for pod in self.pods[name] if pod.process is None]
        for pod in waiting[:count]:
            pod.start()

    def get(self, path: str, query: dict[str, list[str]]) -> tuple[int, Json | str]:
        self.asked.append(path)
        if path in _DISCOVERY:
            return 200, _DISCOVERY[path]
        if path == GROUP and self.defines_trainjobs:
            return 200, _TRAINJOBS
        if found := re.fullmatch(r"/api/v1/namespaces/[^/]+/secrets/([^/]+)", path):
            held = self.secrets.get(found[1])
            return self._not_found(path) if held is None else (200, {"kind": "Secret", "data": held})
        if path == "/api/v1/nodes":
            return 200, {"apiVersion": "v1", "kind": "NodeList", "items": self.nodes}
        if found := _JOB.fullmatch(path):
            name = found[1]
            known = name in self.jobs
            return (200, self.jobs[name] | {"status": self._job_status(name)}) if known else self._not_found(path)
        if found := _PODS.fullmatch(path):
            return self._pods(found, query, path)
        return self._not_found(path)

    def delete(self, path: str) -> tuple[int, Json]:
        found = _JOB.fullmatch(path)
        name = found[1] if found else ""
        if name not in self.jobs:
            return self._not_found(path)
        del self.jobs[name]
        self.deleted.append(name)
        for pod in self.pods.get(name, []):
            pod.stop()
        return 200, _status(200, "Success", "")

    def _pods(self, found: re.Match[str], query: dict[str, list[str]], path: str) -> tuple[int, Json | str]:
        namespace, name, log = found.groups()
        wanted = query.get("labelSelector", [""])[0].rpartition("=")[2]
        every = [p for job, pods in self.pods.items() for p in pods if not wanted or job == wanted]
        every = [p for p in every if not self.forgets or p.code is None]
        if name is None:
            items = [p.to_json(namespace) for p in every]
            return 200, {"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": items}
        pod = next((p for p in every if p.name == name), None)
        if pod is None:
            return self._not_found(path)
        return self._log(pod, query) if log else (200, pod.to_json(namespace))

    def _log(self, pod: Pod, query: dict[str, list[str]]) -> tuple[int, Json | str]:
        """Whole, once the pod has ended where it is followed; else from `sinceTime` on. The n-th line is written n
        microseconds after the pod's start."""
        if pod.process is None:
            return 400, _status(
                400, "BadRequest", f'container "node" in pod "{pod.name}" is waiting to start: {pod.held}'
            )
        if query.get("follow") == ["true"]:
            pod.process.wait()
        since = datetime.fromisoformat(query.get("sinceTime", ["1970-01-01T00:00:00Z"])[0])
        stamped = query.get("timestamps") == ["true"]
        lines = enumerate(pod.log.read_text(errors="replace").splitlines(keepends=True))
        timed = [(pod.started + timedelta(microseconds=n), line) for n, line in lines]
        kept = [(at, line) for at, line in timed if at >= since]
        return 200, "".join(f"{at:%Y-%m-%dT%H:%M:%S.%f}000Z {line}" if stamped else line for at, line in kept)

    def _job_status(self, name: str) -> Json:
        codes = [p.code for p in self.pods[name]]
        count = {
            "active": sum(c is None for c in codes),
            "ready": sum(c is None for c in codes),
            "failed": int(any(c for c in codes)),
            "succeeded": int(all(c == 0 for c in codes)),
        }
        return {"jobsStatus": [{"name": "node", "suspended": 0, **count}]}

    def _not_found(self, path: str) -> tuple[int, Json]:
        self.unknown.append(path)
        return 404, _status(404, "NotFound", path)


_TRAINJOBS = {
    "kind": "APIResourceList",
    "groupVersion": GROUP.removeprefix("/apis/"),
    "resources": [
        {"name": "trainjobs", "singularName": "", "namespaced": True, "kind": "TrainJob", "verbs": ["create", "get"]}
    ],
}
"""What the server says of its kind of job."""
_POD_KIND = {
    "name": "pods", "singularName": "pod", "namespaced": True, "kind": "Pod", "verbs": ["get", "list"],
    "shortNames": ["po"],
}  # fmt: skip
_LOG_KIND = {"name": "pods/log", "singularName": "", "namespaced": True, "kind": "Pod", "verbs": ["get"]}
_DISCOVERY: dict[str, Json] = {
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
    "/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": [_POD_KIND, _LOG_KIND]},
}  # fmt: skip


def _status(code: int, reason: str, message: str) -> Json:
    status = "Success" if code == 200 else "Failure"
    return {"kind": "Status", "apiVersion": "v1", "status": status, "reason": reason, "message": message, "code": code}


def _handler(api: Api) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            url = urlparse(self.path)
            self._answer(*api.get(url.path, parse_qs(url.query)))

        def do_POST(self) -> None:
            self._answer(*api.post(urlparse(self.path).path, json.loads(self._body())))

        def do_DELETE(self) -> None:
            self._body()
            self._answer(*api.delete(urlparse(self.path).path))

        def _body(self) -> bytes:
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))

        def _answer(self, code: int, value: Json | str) -> None:
            data = (value if isinstance(value, str) else json.dumps(value)).encode()
            self.send_response(code)
            self.send_header("Content-Type", "text/plain" if isinstance(value, str) else "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing is printed."""

    return Handler
