"""Make what pods need on Google Kubernetes Engine: annotations of networks and devices, and a fabric's daemon."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]
SOCKET = "daemon-socket"
"""The volume of the sockets between a daemon and the ranks."""
_NETWORKS = "networking.gke.io/"
_DEVICES = "devices.gke.io/container."
_FIRST = "eth0"


def annotated(pod: Mapping[str, str], interfaces: Mapping[str, str]) -> dict[str, str]:
    """The networks of a pod, its own one first, and the devices of its daemon."""
    devices = pod.get("daemon_devices") if "daemon" in pod else None
    found = {_DEVICES + pod["daemon"]: _listed(devices)} if devices else {}
    if not interfaces:
        return found
    every = {_FIRST: "default"} | dict(interfaces)
    networks = [{"interfaceName": name, "network": network} for name, network in every.items()]
    said = json.dumps(networks, separators=(",", ":"))
    return {**found, f"{_NETWORKS}default-interface": _FIRST, f"{_NETWORKS}interfaces": said}


def _listed(devices: str) -> str:
    return "".join(f"- path: {path}\n" for path in devices.split(","))


def sidecar(pod: Mapping[str, str], mounts: list[Json]) -> Json:
    """The daemon, which starts before the ranks and ends after them: an init container that restarts."""
    capabilities = pod.get("daemon_capabilities")
    parts = {
        "image": pod.get("daemon_image"),
        "command": shlex.split(pod.get("daemon_command", "")),
        "restartPolicy": "Always",
        "env": [{"name": "LD_LIBRARY_PATH", "value": "/usr/local/nvidia/lib64"}],
        "securityContext": {"capabilities": {"add": capabilities.split(",")}} if capabilities else {},
        "volumeMounts": mounts,
    }
    return {"name": pod["daemon"], **{name: part for name, part in parts.items() if part}}
