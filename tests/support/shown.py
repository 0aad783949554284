"""What each place says of a running pipeline, side by side: INFO ALL, LAG, the page and /metrics of its source's home.

The source's Manager is given a page that knows the target's home too, so that all of them tell of the whole pipeline.
"""

from __future__ import annotations

import html
import re
import urllib.request
from typing import Any

from demo.patience import PATIENCE
from demo.pipeline import Host, Pipeline
from demo.ports import free_port

NAME, DRAWN = "EXT1 > PMP1 > REP1", "EXT1 → PMP1 → REP1"
WHOLE, PUMP = f'home="source",pipeline="{NAME}"', 'group="PMP1",home="source",program="PUMP"'
STATES = ("RUNNING", "STOPPED", "ABENDED", "STARTING", "UNKNOWN")


class Shown:
    """Of one pipeline, from now on."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._source, self._port = pipeline.source, free_port()
        with (pipeline.source.home / "dirprm" / "mgr.prm").open("a") as file:
            file.write(f"WEBPORT {self._port}\nWEBCHECKSECONDS 1\nWEBHOME target, DIR {pipeline.target.home}\n")
        pipeline.source.run("REFRESH MANAGER")

    def fetch(self, path: str) -> str:
        """What the page answers; empty as long as it is not there."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}{path}", timeout=PATIENCE) as answer:
                return str(answer.read().decode())
        except OSError:
            return ""

    def page(self) -> str:
        """The words of the page."""
        return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]*>", " ", self.fetch("/"))))

    def figures(self) -> dict[str, float]:
        """Those of /metrics, by name and labels; the page answers only so many requests a second."""
        lines = [line.rpartition(" ") for line in self.fetch("/metrics").splitlines() if not line.startswith("#")]
        return {name: float(value) for name, _, value in lines}

    def state(self) -> str:
        """The one that /metrics has."""
        return _state(self.figures())

    def told(self, state: str, why: str) -> dict[str, bool]:
        """Which places say that the pipeline is in this state, that its lag is not known, and that this is why."""
        (path,) = self._source.json("INFO ALL, DETAIL")["pipelines"]
        pump, page, figures = group_of(self._source, "PMP1"), self.page(), self.figures()
        return {
            "INFO ALL, DETAIL": (path["state"], path["lag_us"]) == (state, None) and why in path["why"],
            "INFO ALL": pump["lag_us"] is None and why in pump["lag_why"],
            "LAG": f"Last record lag UNKNOWN: {why}" in self._source.look("LAG EXTRACT PMP1").out,
            "/metrics": _state(figures) == state
            and figures[f"trailgate_pipeline_lag_known{{{WHOLE}}}"] == 0
            and f"trailgate_pipeline_lag_seconds{{{WHOLE}}}" not in figures
            and figures[f"trailgate_lag_known{{{PUMP}}}"] == 0,
            "the page": bool(re.search(f"{DRAWN} {state} {re.escape(why)}.{{0,200}} end to end UNKNOWN", page)),
        }

    def everything(self) -> str:
        """For whoever waits in vain."""
        figures = [f"{name} {value}" for name, value in self.figures().items() if "pipeline_" in name or PUMP in name]
        told = self._source.run("INFO ALL, DETAIL", "LAG EXTRACT PMP1", check=False).text
        return "\n".join([told, *figures, self.page()])


def _state(figures: dict[str, float]) -> str:
    return next((one for one in STATES if figures.get(f'trailgate_pipeline_status{{{WHOLE},status="{one}"}}')), "")


def group_of(host: Host, name: str) -> dict[str, Any]:
    """As INFO ALL has it."""
    return next(one for one in host.json("INFO ALL")["groups"] if one["group"] == name)
