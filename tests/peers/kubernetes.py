"""Kubernetes' own descriptions read an exported JobSet.

The JobSet is checked against the schema of JobSet's own CRD, in which unknown keys are made errors (an API server would drop
them); JOBSET_CRD names that file (kubernetes-sigs/jobset, config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml). Where
kubectl is on the PATH, `kubectl kustomize` must give the same JobSet, with and without Kueue's component, and the ConfigMap.
`hosts`, `world_size`, `environment`: every pod that the JobSet asks for runs what its container does, with a torchrun that
writes down what it was called with; the rank of each local rank is then the exported shim's own.
"""

from __future__ import annotations

import copy
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import jsonschema
import yaml

TORCHRUN = "import json, os, sys\nprint(json.dumps({'arguments': sys.argv[1:], 'environment': dict(os.environ)}))\n"
FILES = ("node.sh", "holmes_launch.py", "ranks.json", "plan.json")


def VERSIONS() -> dict[str, str]:
    """The CRD by its content, and kubectl's version."""
    found = {"jobset CRD": hashlib.sha256(Path(os.environ["JOBSET_CRD"]).read_bytes()).hexdigest()[:12]}
    if shutil.which("kubectl"):
        told = json.loads(subprocess.check_output(["kubectl", "version", "--client", "-o", "json"], text=True))
        found |= {"kubectl": told["clientVersion"]["gitVersion"], "kustomize": told["kustomizeVersion"]}
    return found


def read(folder: Path, plan_json: dict[str, Any]) -> dict[str, Any]:
    """What the pods become; raises where the schema or kustomize refuses."""
    jobset = yaml.safe_load((folder / "jobset.yaml").read_text())
    jsonschema.validate(jobset, _schema(), jsonschema.Draft202012Validator)
    if shutil.which("kubectl"):
        _kustomized(folder, jobset)
    table, shim = json.loads((folder / "ranks.json").read_text()), _shim(folder)
    hosts: dict[str, str] = {}
    environments: dict[str, dict[str, str]] = {}
    nodes, world = [], 0
    for told in _pods(folder, jobset):
        variables = told["environment"]
        local_ranks = int(_option(told, "--nproc-per-node"))
        nodes.append(int(_option(told, "--node-rank")))
        world += local_ranks
        host = variables["HOLMES_HOST"]
        environments[host] = {key: value for key, value in variables.items() if re.match("NCCL_|GLOO_|[A-Z_]*VISIBLE", key)}
        for local in range(local_ranks):
            seat = {"LOCAL_RANK": str(local), "WORLD_SIZE": str(table["world_size"])}
            hosts[shim.seat_of(table, variables | seat, "")["RANK"]] = host
    if sorted(nodes) != list(range(len(nodes))):
        raise ValueError(f"node ranks are {nodes}")
    return {"world_size": world, "hosts": hosts, "environment": environments}


def _pods(folder: Path, jobset: dict[str, Any]) -> list[dict[str, Any]]:
    """What torchrun is called with in every pod; raises where the master is not the pod of node rank 0."""
    found = []
    with tempfile.TemporaryDirectory() as scratch:
        stub = Path(scratch) / "torchrun"
        stub.write_text(f"#!{sys.executable}\n{TORCHRUN}")
        stub.chmod(0o755)
        for job in jobset["spec"]["replicatedJobs"]:
            spec = job["template"]["spec"]
            (container,) = spec["template"]["spec"]["containers"]
            given = {entry["name"]: entry["value"] for entry in container["env"]}
            program, script = container["command"]
            for index in range(spec["completions"]):
                variables = given | {"JOB_COMPLETION_INDEX": str(index), "PATH": f"{scratch}:{os.environ['PATH']}"}
                words = [program, script.replace("/holmes", str(folder))]
                told = json.loads(subprocess.check_output(words, env=variables, text=True))
                name = f"{jobset['metadata']['name']}-{job['name']}-0-{index}.{jobset['metadata']['name']}"
                if (_option(told, "--master-addr") == name) != (_option(told, "--node-rank") == "0"):
                    raise ValueError(f"{name} is node {_option(told, '--node-rank')}; master {_option(told, '--master-addr')}")
                found.append(told)
    return found


def _kustomized(folder: Path, jobset: dict[str, Any]) -> None:
    meant = copy.deepcopy(jobset)
    for job in meant["spec"]["replicatedJobs"]:
        job["template"]["spec"]["template"]["spec"]["containers"][0]["image"] = "registry.example/trainer:latest"
    config, seen = _built(folder)
    if seen != meant:
        raise ValueError("kubectl kustomize gives another JobSet")
    if config["data"] != {name: (folder / name).read_text() for name in FILES}:
        raise ValueError("kubectl kustomize gives another ConfigMap")
    with tempfile.TemporaryDirectory() as scratch:
        queued = Path(scratch) / "launch"
        shutil.copytree(folder, queued)
        kustomization = queued / "kustomization.yaml"
        kustomization.write_text(kustomization.read_text().replace("# components", "components"))
        _, seen = _built(queued)
    jsonschema.validate(seen, _schema(), jsonschema.Draft202012Validator)
    if seen["metadata"]["labels"] != {"kueue.x-k8s.io/queue-name": "training"}:
        raise ValueError("Kueue's label is missing")


def _built(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """ConfigMap and JobSet as kustomize builds them."""
    told = subprocess.run(["kubectl", "kustomize", str(folder)], text=True, capture_output=True)
    if told.returncode:
        raise ValueError(f"kubectl kustomize: {told.stderr.strip()}")
    by_kind = {document["kind"]: document for document in yaml.safe_load_all(told.stdout)}
    return by_kind["ConfigMap"], by_kind["JobSet"]


def _schema() -> dict[str, Any]:
    crd = yaml.safe_load(Path(os.environ["JOBSET_CRD"]).read_text())
    version = next(one for one in crd["spec"]["versions"] if one["name"] == "v1alpha2")
    schema = version["schema"]["openAPIV3Schema"]
    schema["properties"]["metadata"] = {
        "type": "object",
        "properties": {key: {"type": "object"} for key in ("labels", "annotations")} | {"name": {"type": "string"}},
        "required": ["name"],
    }
    return _closed(schema)


def _closed(schema: Any) -> Any:
    """The schema with unknown keys refused wherever it lists the known ones."""
    if isinstance(schema, list):
        return [_closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: _closed(value) for key, value in schema.items()}
    if isinstance(found.get("properties"), dict) and not found.get("x-kubernetes-preserve-unknown-fields"):
        found.setdefault("additionalProperties", False)
    return found


def _option(told: dict[str, Any], name: str) -> str:
    return next(word.split("=", 1)[1] for word in told["arguments"] if word.startswith(f"{name}="))


def _shim(folder: Path) -> Any:
    spec = importlib.util.spec_from_file_location("holmes_launch", folder / "holmes_launch.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
