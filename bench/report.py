# SPDX-License-Identifier: Apache-2.0
"""A page with plots of what run.py measured: plain SVG, nothing to load.

What was not measured is left out. By itself: report.py bench.json bench.html
"""
import html
import json
import math
import pathlib
import sys

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 420, 260, 52, 30, 14, 40
COLOURS = ("#1f6feb", "#d1242f", "#2da44e", "#8250df", "#bf8700", "#57606a")
STYLE = """body{font:14px sans-serif;max-width:1340px;margin:2em auto;padding:0 1em;color:#1f2328}
svg{margin:4px;background:#fff;border:1px solid #d0d7de}text{font:11px sans-serif;fill:#1f2328}
table{border-collapse:collapse}td,th{padding:2px 10px;text-align:left;border-bottom:1px solid #d0d7de}
.missed{color:#d1242f}"""


def ticks(low, high, logarithmic):
    if logarithmic:
        return [10 ** e for e in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)]
    step = 10 ** math.floor(math.log10((high - low) or 1))
    while (high - low) / step < 4:
        step /= 2
    return [low + i * step for i in range(int((high - low) / step) + 1)]


def line_plot(title, x_label, y_label, series, logarithmic=False, low=None, high=None):
    """series: {name: {x: y}}; the x are set side by side at equal distances."""
    xs = sorted({x for points in series.values() for x in points})
    ys = [y for points in series.values() for y in points.values()]
    low = min(ys) if low is None else low
    high = max(ys) if high is None else high
    marks = ticks(max(low, 0.01) if logarithmic else low, high, logarithmic)
    low, high = min(marks[0], low), max(marks[-1], high)
    scale = math.log10 if logarithmic else float
    span = (scale(high) - scale(low)) or 1

    def at(x, y):
        across = xs.index(x) / max(len(xs) - 1, 1)
        return (LEFT + across * (WIDTH - LEFT - RIGHT),
                HEIGHT - BOTTOM - (scale(y) - scale(low)) / span * (HEIGHT - TOP - BOTTOM))

    out = [f'<svg width="{WIDTH}" height="{HEIGHT}" role="img"><title>{html.escape(title)}</title>'
           f'<text x="{LEFT}" y="16" font-weight="bold">{html.escape(title)}</text>']
    for mark in marks:
        y = at(xs[0], mark)[1]
        out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#d8dee4"/>'
                   f'<text x="{LEFT - 5}" y="{y + 4:.1f}" text-anchor="end">{mark:g}</text>')
    for x in xs:
        out.append(f'<text x="{at(x, high)[0]:.1f}" y="{HEIGHT - BOTTOM + 15}" text-anchor="middle">{x}</text>')
    out.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 8}" text-anchor="middle">{html.escape(x_label)}</text>'
               f'<text x="12" y="{HEIGHT / 2}" text-anchor="middle" '
               f'transform="rotate(-90 12 {HEIGHT / 2})">{html.escape(y_label)}</text>')
    for number, (name, points) in enumerate(series.items()):
        colour = COLOURS[number % len(COLOURS)]
        places = [at(x, points[x]) for x in xs if x in points]
        out.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="'
                   + " ".join(f"{x:.1f},{y:.1f}" for x, y in places) + '"/>')
        out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
        out.append(f'<rect x="{WIDTH - 130}" y="{TOP + 14 * number}" width="9" height="9" fill="{colour}"/>'
                   f'<text x="{WIDTH - 117}" y="{TOP + 9 + 14 * number}">{html.escape(name)}</text>')
    return "".join(out) + "</svg>"


def numbered(points):
    """JSON turns the numbers that are keys into texts."""
    return {int(x): y for x, y in points.items()}


def model_plots(figures):
    served = figures["gb_served_percent"]
    return [line_plot(f"Memory served, {mix} mix, load {figures['load']:g} (model)", "cards", "% of the GB asked for",
                      {rule: numbered(served[rule][mix]) for rule in served}, low=40, high=100)
            for mix in next(iter(served.values()))]


def churn_plots(figures):
    plots = [line_plot(f"Memory served through berthd, {mix} mix", "seed", "% of the GB asked for",
                       {policy: dict(enumerate(values, 1)) for policy, values in by_policy.items()}, low=40, high=100)
             for mix, by_policy in figures["gb_served_percent"].items()]
    scales = {cards: numbered(by_clients) for cards, by_clients in numbered(figures["scales"]).items()}

    def of_scales(title, unit, key, **options):
        return line_plot(title, "clients", unit, {f"{cards} cards": {n: max(f[key], 0.01) for n, f in by.items()}
                                                  for cards, by in scales.items()}, **options)

    plots += [of_scales("Claim, median, under churn", "ms", "claim_median_ms", logarithmic=True),
              of_scales("Claim, p99, under churn", "ms", "claim_p99_ms", logarithmic=True),
              of_scales("Claims and refusals a second", "1/s", "claims_a_second", low=0),
              of_scales("GET /resources a second meanwhile", "1/s", "gets_a_second", low=0),
              of_scales("Processor time for each arrival", "ms", "cpu_ms_a_claim", low=0),
              of_scales("Memory of berthd and its helpers", "MB", "memory_mb", low=0)]
    for statistic in ("median", "p99"):
        plots.append(line_plot(
            f"Claims at the same time, 16 cards: {statistic} of each", "claims at the same time", "ms",
            {"berthd": {n: s[statistic] for n, s in numbered(figures["burst_ms"]).items()},
             "one query for each": {n: s[statistic] for n, s in
                                    numbered(figures["burst_ms_one_query_per_claim"]).items()},
             "floor of one": {n: figures["floor_ms"]["median"] for n in numbered(figures["burst_ms"])}},
            logarithmic=True))
    return plots


def write(path, results):
    plots = []
    if "placement" in results["figures"]:
        plots += model_plots(results["figures"]["placement"])
    if "churn" in results["figures"]:
        plots += churn_plots(results["figures"]["churn"])
    rows = "".join(f'<tr class="{"" if c["passed"] else "missed"}"><td>{html.escape(c["name"])}</td>'
                   f'<td>{c["value"]:g} {c["unit"]}</td><td>{html.escape(c["relation"])} {c["target"]:g}</td>'
                   f'<td>{html.escape(c["what"])}</td></tr>' for c in results["checks"])
    facts = ", ".join(f"{key} {value}" for key, value in results["machine"].items())
    path.write_text(
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>berth: measurements</title>'
        f"<style>{STYLE}</style><h1>berth: measurements</h1><p>{html.escape(facts)}</p>{''.join(plots)}"
        f"<h2>Targets</h2><table><tr><th>name<th>value<th>target<th>what</tr>{rows}</table></html>\n")


if __name__ == "__main__":
    write(pathlib.Path(sys.argv[2]), json.loads(pathlib.Path(sys.argv[1]).read_text()))
