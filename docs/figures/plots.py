"""The plots of README and docs/performance.md: SVG for light and dark that needs no other file."""

import html
import math
from collections.abc import Iterable
from typing import Optional

WIDTH, LABEL, ROW, MARGIN = 772, 206, 24, 12
STYLE = """
text{fill:#1f2328;font:13px system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans","DejaVu Sans",sans-serif}
.w{fill:#ffffff}.t{font-weight:600}.s{fill:#59636e;font-size:12px}.e{text-anchor:end}.m{text-anchor:middle}
.g{stroke:#d8dee4;stroke-width:1}.ours{fill:#0969da}.other{fill:#a8b1bb}.hand{fill:#d0d7de}
.l{stroke:#c4ccd4;stroke-width:2}.b{font-weight:600}
@media (prefers-color-scheme:dark){
text{fill:#e6edf3}.w{fill:#0d1117}.s{fill:#9198a1}.g{stroke:#30363d}.ours{fill:#4493f8}.other{fill:#6e7681}.hand{fill:#3d444d}
.l{stroke:#3d444d}}
"""
#: A name, whose it is (ours, other, hand), and a figure for each panel.
Bar = tuple[str, str, list[Optional[float]]]


def text(x: float, y: float, words: str, kind: str = "") -> str:
    name = f' class="{kind}"' if kind else ""
    return f'<text{name} x="{x:.1f}" y="{y:.1f}">{html.escape(words)}</text>'


def page(height: float, what: str, parts: Iterable[str]) -> str:
    """With a ground of its own: a page may be dark where the reader's system is not."""
    width, height = WIDTH + 2 * MARGIN, height + 2 * MARGIN
    box = f'x="{-MARGIN}" y="{-MARGIN}" width="{width}" height="{height:.0f}"'
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height:.0f}"'
        f' viewBox="{-MARGIN} {-MARGIN} {width} {height:.0f}" role="img">'
        f"<title>{html.escape(what)}</title><style>{STYLE}</style>"
        f'<rect class="w" {box} rx="7"/>'
    )
    return "\n".join([head, *parts, "</svg>", ""])


def shown(figure: float, unit: str) -> str:
    """Two or three digits that mean something."""
    digits = 0 if figure >= 10 else 1 if figure >= 1 else 2
    return f"{figure:,.{digits}f} {unit}"


def bars(title: str, note: str, panels: list[str], rows: list[Bar], unit: str) -> str:
    """A panel beside the other, with a scale of its own each, which begins at zero."""
    room, gap, left, top = 62, 24, LABEL, 78
    width = (WIDTH - left - gap * (len(panels) - 1)) / len(panels)
    parts = [text(0, 18, title, "t"), text(0, 38, note, "s")]
    for at, panel in enumerate(panels):
        x = left + at * (width + gap)
        most = max(figures[at] or 0 for _, _, figures in rows)
        parts.append(text(x, 66, panel, "s"))
        for number, (name, kind, figures) in enumerate(rows):
            y = top + number * ROW
            if at == 0:
                parts.append(text(left - 10, y + 14, name, "e b" if kind == "ours" else "e"))
            figure = figures[at]
            if figure is None:
                continue
            long = figure / most * (width - room)
            parts.append(
                f'<rect class="{kind}" x="{x:.1f}" y="{y + 2}" width="{long:.1f}" height="{ROW - 7}" rx="2"/>'
            )
            parts.append(text(x + long + 6, y + 14, shown(figure, unit), "s"))
    return page(top + len(rows) * ROW + 6, title, parts)


def dots(
    title: str, note: str, groups: list[tuple[str, list[tuple[str, str, float]]]], unit: str
) -> str:
    """On an axis where each step is ten times the one before."""
    left, right, top = LABEL, WIDTH - 86, 60
    figures = [figure for _, rows in groups for _, _, figure in rows]
    least, most = math.floor(math.log10(min(figures))), math.ceil(math.log10(max(figures)))

    def place(figure: float) -> float:
        return left + (math.log10(figure) - least) / (most - least) * (right - left)

    height = top + sum(22 + len(rows) * ROW for _, rows in groups)
    parts = [text(0, 18, title, "t"), text(0, 38, note, "s")]
    for step in range(least, most + 1):
        x = place(10.0**step)
        parts.append(f'<line class="g" x1="{x:.1f}" y1="{top - 2}" x2="{x:.1f}" y2="{height}"/>')
        parts.append(text(x, height + 18, f"{10.0**step:g} {unit}", "s m"))
    y = float(top)
    for store, rows in groups:
        parts.append(text(0, y + 15, store, "s"))
        y += 22
        for name, kind, figure in rows:
            x = place(figure)
            parts.append(text(left - 10, y + 14, name, "e b" if kind == "ours" else "e"))
            parts.append(
                f'<line class="l" x1="{left}" y1="{y + 10}" x2="{x:.1f}" y2="{y + 10}"/>'
                f'<circle class="{kind}" cx="{x:.1f}" cy="{y + 10}" r="6"/>'
            )
            parts.append(text(x + 12, y + 14, shown(figure, unit), "s"))
            y += ROW
    return page(height + 28, title, parts)


def draw(figures: dict[str, float]) -> dict[str, str]:
    """The pictures by their names."""

    def both(name: str) -> list[Optional[float]]:
        return [figures[f"{name}_one_us"], figures[f"{name}_each_us"]]

    cycle = bars(
        "One acquire and release on Redis",
        "Median. Shorter is better.",
        ["client and server on one core", "a core each"],
        [
            ("by hand in C, no fence", "hand", both("plain")),
            ("by hand in C, with a fence", "hand", both("by_hand")),
            ("Leasehold, Rust", "ours", both("rust")),
            ("Leasehold, C", "ours", both("c")),
            ("Leasehold, Java", "ours", both("java")),
            ("Leasehold, Python", "ours", both("python")),
            ("redsync (Go)", "other", both("redsync")),
            ("Redisson (Java)", "other", both("redisson")),
            ("redis-py's Lock (Python)", "other", both("redis_py")),
        ],
        "µs",
    )
    ours = "Leasehold"
    hand_over = dots(
        "From a release until the waiter holds the lock",
        "Median, with each library's default settings. Each line of the axis is ten times the one before.",
        [
            (
                "Redis",
                [
                    (ours, "ours", figures["pass_leasehold"]),
                    ("Redisson RLock", "other", figures["pass_redisson"]),
                    ("redis-py Lock", "other", figures["pass_redis_py"]),
                    ("redsync", "other", figures["pass_redsync"]),
                ],
            ),
            (
                "PostgreSQL, synced to disk",
                [
                    (ours, "ours", figures["pass_postgres"]),
                    ("advisory lock", "other", figures["pass_advisory"]),
                    ("SELECT FOR UPDATE", "other", figures["pass_for_update"]),
                ],
            ),
            (
                "ZooKeeper, synced to disk",
                [
                    (ours, "ours", figures["pass_zookeeper"]),
                    ("Curator InterProcessMutex", "other", figures["pass_curator"]),
                ],
            ),
            (
                "etcd, synced to disk",
                [
                    (ours, "ours", figures["pass_etcd"]),
                    ("concurrency.Mutex", "other", figures["pass_mutex"]),
                ],
            ),
        ],
        "ms",
    )
    return {"cycle": cycle, "hand-over": hand_over}
