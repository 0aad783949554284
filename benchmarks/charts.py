"""Curves as SVG: one file a curve of `growing`, its time at the left and its memory at the right, both axes in powers.

Rule: a chart holds what the page's table holds, and nothing is fitted or smoothed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import escape

from benchmarks.results import OURS, Line

WIDTH, HEIGHT = 860, 300
LEFT, TOP, PANEL, DEPTH, GAP = 60, 40, 330, 200, 90
COLOURS = ("#b4531f", "#3566a8")
"""Ours, and the peer's."""
STYLE = "text{font-family:sans-serif;font-size:12px;fill:#333}.axis{stroke:#999}.grid{stroke:#e6e6e6}"
Point = tuple[float, float]


def draw(lines: Sequence[Line], folder: Path) -> list[Path]:
    """A file for each curve that these lines of one benchmark hold; their cases are a name and a number."""
    names = list(dict.fromkeys(line.case.rpartition(" ")[0] for line in lines))
    made = []
    for name in names:
        path = folder / f"growing-{name.split()[-1].lower()}.svg"
        path.write_text(_chart(name, [line for line in lines if line.case.rpartition(" ")[0] == name]))
        made.append(path)
    return made


def _chart(name: str, lines: Sequence[Line]) -> str:
    box = f'viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(name)}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {box}>',
        f'<style>{STYLE}</style><rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    for place, what in enumerate(dict.fromkeys(line.what for line in lines)):
        some = {line.who: _points(lines, line.who, what) for line in lines if line.what == what}
        parts += _panel(LEFT + place * (PANEL + GAP), f"{what}, by {name}", some)
    return "\n".join([*parts, "</svg>", ""])


def _points(lines: Sequence[Line], who: str, what: str) -> list[Point]:
    found = [line for line in lines if (line.who, line.what) == (who, what)]
    return [(float(line.case.rpartition(" ")[2].replace(",", "")), line.median) for line in found]


def _panel(left: float, title: str, series: dict[str, list[Point]]) -> list[str]:
    """Two axes with a line at each power of ten, and the series."""
    across = _scale([x for points in series.values() for x, _ in points])
    up = _scale([y for points in series.values() for _, y in points])
    parts = [f'<text x="{left}" y="{TOP - 16}" font-weight="bold">{escape(title)}</text>']
    for x in _powers(across):
        at = left + PANEL * _share(x, across)
        parts.append(f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{TOP + DEPTH}"/>')
        parts.append(f'<text x="{at:.1f}" y="{TOP + DEPTH + 16}" text-anchor="middle">{_short(x)}</text>')
    for y in _powers(up):
        at = TOP + DEPTH * (1 - _share(y, up))
        parts.append(f'<line class="grid" x1="{left}" x2="{left + PANEL}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(f'<text x="{left - 6}" y="{at + 4:.1f}" text-anchor="end">{_short(y)}</text>')
    parts.append(f'<path class="axis" fill="none" d="M{left} {TOP}V{TOP + DEPTH}H{left + PANEL}"/>')
    for number, (who, points) in enumerate(sorted(series.items(), key=lambda one: one[0] != OURS)):
        places = [(left + PANEL * _share(x, across), TOP + DEPTH * (1 - _share(y, up))) for x, y in points]
        parts += _line(who, places, COLOURS[number], left + 150 * number)
    return parts


def _line(who: str, places: Sequence[Point], colour: str, left: float) -> list[str]:
    """One series: its points, what joins them, and its name below."""
    joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    dots = [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
    low = TOP + DEPTH + 38
    return [
        f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{joined}"/>',
        *dots,
        f'<circle cx="{left + 5}" cy="{low - 4}" r="4" fill="{colour}"/>',
        f'<text x="{left + 14}" y="{low}">{escape(who)}</text>',
    ]


def _scale(values: Sequence[float]) -> tuple[int, int]:
    """The powers of ten that hold all values; one at least lies between them."""
    low = math.floor(math.log10(min(values)) + 1e-9)
    return low, max(low + 1, math.ceil(math.log10(max(values)) - 1e-9))


def _powers(scale: tuple[int, int]) -> list[float]:
    return [10.0**power for power in range(scale[0], scale[1] + 1)]


def _share(value: float, scale: tuple[int, int]) -> float:
    """How far along an axis it stands, from 0 to 1."""
    return (math.log10(value) - scale[0]) / (scale[1] - scale[0])


def _short(value: float) -> str:
    for size, name in ((1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{name}"
    return f"{value:g}"
