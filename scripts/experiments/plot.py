"""Pictures, where matplotlib is installed."""

import importlib.util
import itertools
import re
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Sequence, Tuple

from rendering.cells import NAMES

Points = Sequence[Tuple[float, float]]
ACROSS = 3  # panels in a row
DIGEST = 16  # characters
TICKS = (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8)  # in a decade
MOST = 6  # lines of a panel
METHODS = NAMES["colours"]
_MODELS = ("#1b9e77", "#d95f02", "#7570b3", "#e7298a", "#66a61e", "#a6761d")  # of clouds


class Panel(NamedTuple):
    """Lines in one pair of axes.

    Attributes:
        lines: (label, points), of which the panel shows MOST: one of every method comes first. A
            method has one colour in all pictures.
        axes: for matplotlib's Axes.set: title, labels and scales.
    """

    lines: Sequence[Tuple[str, Points]]
    axes: Mapping[str, Any]


class Cloud(NamedTuple):
    """Points of one colour.

    Attributes:
        label: for the legend.
        points: (x, y, the name beside it).
        joined: corners of a line.
        hollow: points that are drawn as rings, with their names.
    """

    label: str
    points: Sequence[Tuple[float, float, str]]
    joined: Points = ()
    hollow: Sequence[Tuple[float, float, str]] = ()


def source_of(path: Path) -> str:
    """Return the digest in a picture's metadata; an empty text for none, or no picture."""
    text = path.read_bytes() if path.is_file() else b""
    # A chunk of text, as PNG has it: key, 0, value.
    return text.partition(b"tEXtSource\0")[2][:DIGEST].decode("ascii", "replace")


def draw(fill: Callable[[Any], None], path: Path, source: str = "", letters: float = 9) -> str:
    """Write a picture.

    Args:
        fill: draws into a figure: :func:`lines` or :func:`clouds`, with what is to be drawn.
        source: a digest of the numbers, for the metadata.
        letters: their size.

    Returns:
        what was done, or why it was not.
    """
    if importlib.util.find_spec("matplotlib") is None:
        return f"{path.name}: skipped, matplotlib is not installed (pip install matplotlib)"
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    own: Any = {"font.size": letters, "axes.titlesize": "medium", "legend.labelspacing": 0.2}
    with rc_context({**own, "legend.handlelength": 1.4, "legend.borderpad": 0.2}):
        figure = Figure()  # no display, and none of pyplot's global state
        fill(figure)
        figure.savefig(str(path), dpi=120, metadata={"Source": source} if source else None)
    return f"{path.name}: written"


def method(label: str) -> int:
    """Return the place of a label's method in METHODS; of an unknown one, the place after."""
    found = (place for place, (_, start) in enumerate(METHODS) if re.match(start, label))
    return next(found, len(METHODS))


def chosen(labels: Iterable[str]) -> List[str]:
    """Return the labels that a panel shows, in the order of their methods."""
    ranks: List[Any] = []
    for label in sorted(labels, key=lambda label: (len(label), label)):
        place = method(label)
        turn = sum(other == place for _, other, *_ in ranks) if place < len(METHODS) else 0
        ranks.append((turn, place, len(label), label))
    return [label for *_, label in sorted(sorted(ranks)[:MOST], key=lambda rank: rank[1:])]


def _styles(labels: Sequence[str]) -> Dict[str, Dict[str, str]]:
    """Return the style of every label; other labels of a method have other lines."""
    found: Dict[str, Dict[str, str]] = {}
    for label in labels:
        place = method(label)
        alike = sum(method(other) == place for other in found)
        colour, turn = f"C{alike % 10}", 0
        if place < len(METHODS):
            colour, turn = METHODS[place][0], alike % 3
        found[label] = {"color": colour, "linestyle": ("-", "--", ":")[turn], "marker": ".x^"[turn]}
    return found


def lines(panels: Sequence[Panel], title: str, figure: Any) -> None:
    """Draw panels side by side, each with a legend."""
    across, down = min(len(panels), ACROSS), -(-len(panels) // ACROSS)
    figure.set_size_inches(5 * across, 4.5 * down)
    for place, panel in enumerate(panels, start=1):
        one, points = figure.add_subplot(down, across, place), dict(panel.lines)
        styles = _styles(chosen(label for label, some in panel.lines if some))
        for label, style in styles.items():
            one.plot(*zip(*points[label]), label=NAMES["legend"].get(label, label), **style)
        one.set(**panel.axes)
        _plain_ticks(one)
        one.grid(True, which="both", alpha=0.3)
        if styles:
            one.legend(framealpha=0.6)
    if title:
        figure.suptitle(title)
    figure.tight_layout()


def clouds(drawn: Sequence[Cloud], axes: Mapping[str, str], figure: Any) -> None:
    """Draw named points, on logarithmic axes.

    Args:
        axes: for matplotlib's Axes.set.
    """
    from matplotlib.transforms import Bbox

    figure.set_size_inches(9, 6.5)
    one = figure.add_subplot()
    named: List[Tuple[float, float, str, str]] = []
    most = sorted(drawn, key=lambda one: -len(one.points))[:MOST]
    for place, cloud in enumerate(one for one in drawn if one in most):
        colour = _MODELS[place]
        one.plot([x for x, _ in cloud.joined], [y for _, y in cloud.joined], color=colour, lw=1)
        for points, inside in ((cloud.hollow, "white"), (cloud.points, colour)):
            x, y = [x for x, _, _ in points], [y for _, y, _ in points]
            (marks,) = one.plot(x, y, "o", color=colour, markerfacecolor=inside, markersize=5)
            named += [(x, y, name, colour) for x, y, name in points]
        marks.set_label(cloud.label)
    one.set(xscale="log", yscale="log", **axes)
    _plain_ticks(one)
    one.grid(True, alpha=0.3)
    taken = [one.legend(fontsize=8).get_window_extent()]
    figure.tight_layout()
    dots = one.transData.transform([(x, y) for x, y, _, _ in named])
    taken += [Bbox.from_bounds(x - 4, y - 4, 8, 8) for x, y in dots]
    for *at, name, colour in named:
        _write_beside(one, at, name, colour, taken)


def _write_beside(one: Any, at: Sequence[float], name: str, colour: str, taken: List[Any]) -> None:
    """Write a name where it covers nothing, if there is such a place; add its box to ``taken``."""
    from matplotlib.text import Text

    line = {"arrowstyle": "-", "color": colour, "lw": 0.4}
    for up, right in itertools.product((1, -1, 3, -3, 5, -5, 7, -7), (1, -1)):
        place: Dict[str, Any] = {"xytext": (5 * right, 5 * up), "textcoords": "offset points"}
        place.update(va="center", ha="left" if right > 0 else "right")
        place["arrowprops"] = line if abs(up) > 1 else None
        text = one.annotate(name, at, color=colour, fontsize=7, **place)
        text.get_window_extent()  # puts it there; with its line, which may cross others
        box = Text.get_window_extent(text)
        inside = one.bbox.contains(*box.min) and one.bbox.contains(*box.max)
        if inside and not box.count_overlaps(taken):
            break
        text.set_visible(False)
    text.set_visible(True)
    taken.append(box)


def _plain_ticks(one: Any) -> None:
    """Show plain numbers; on short logarithmic axes between powers of ten, too."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator

    for axis in (one.xaxis, one.yaxis):
        low, high = axis.get_view_interval()
        if axis.get_scale() == "log" and high < 100 * low:
            few = MaxNLocator(8, steps=[1, 2, 2.5, 5, 10])
            axis.set_major_locator(few if high < 1.8 * low else LogLocator(subs=TICKS))
            axis.set_minor_formatter("")
        axis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.10g}"))
