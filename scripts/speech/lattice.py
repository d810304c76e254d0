"""A recogniser's word lattice, and the hypotheses in it, best first."""

import heapq
import itertools
import math
import re
from typing import Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

BASE = math.log(1.0001)  # of pocketsphinx's logarithms
_NODE = re.compile(r"^(\d+) (\S+) .*;", re.MULTILINE)
_EDGE = re.compile(r"^(\d+) (\d+) (-?\d+)$", re.MULTILINE)
_ENDS = re.compile(r"^(?:Initial|Final) (\d+)", re.MULTILINE)
_VARIANT = re.compile(r"\(\d+\)$")  # of a pronunciation
# What passing over a sound that is no word costs, nats: pocketsphinx's silprob and fillprob.
_SILENCE, _NOISE = math.log(0.005), math.log(1e-8)
_NEVER = -1e6  # nats; below are edges that no sound belongs to

# log P(word | up to two before it), nats
Trigram = Callable[[Sequence[str], str], float]
Edges = Dict[int, Dict[int, float]]
# Minus the estimated total, a number of its own, its last node, words, acoustic, trigram.
_Partial = Tuple[float, int, int, Tuple[str, ...], float, float]


class Lattice(NamedTuple):
    """Words as nodes.

    Attributes:
        words: of the nodes.
        edges: to the words that may follow, with the log-probability, nats, of the sound until
            they begin.
        start, end: nodes of <s> and </s>.
    """

    words: Dict[int, str]
    edges: Edges
    start: int
    end: int


class Path(NamedTuple):
    """Words between <s> and </s> with what their sound and the trigram say of them, nats."""

    words: Tuple[str, ...]
    acoustic: float
    trigram: float


def parse(text: str) -> Lattice:
    """Read a lattice as pocketsphinx writes it."""
    words = {int(number): _VARIANT.sub("", word) for number, word in _NODE.findall(text)}
    edges: Edges = {}
    for one, other, score in (map(int, edge) for edge in _EDGE.findall(text)):
        if score * BASE > _NEVER:
            edges.setdefault(one, {})[other] = score * BASE
    return without_fillers(Lattice(words, edges, *map(int, _ENDS.findall(text))))


def without_fillers(lattice: Lattice) -> Lattice:
    """Return a lattice whose edges lead from word to word, past silence and noise."""
    prices = {node: _price(word) for node, word in lattice.words.items()}
    prices.update({lattice.start: None, lattice.end: None})
    edges: Edges = {}
    for node in _last_first(lattice):
        found = edges.setdefault(node, {})
        for after, sound in lattice.edges.get(node, {}).items():
            price = prices[after]
            ways = {after: 0.0} if price is None else edges[after]
            for word, further in ways.items():
                total = sound + (price or 0.0) + further
                found[word] = max(total, found.get(word, -math.inf))
    kept = {node: found for node, found in edges.items() if prices[node] is None}
    return lattice._replace(edges=kept)


def _price(word: str) -> Optional[float]:
    """Return what passing over a filler costs; None for a word."""
    if word in ("<s>", "<sil>"):
        return _SILENCE
    return _NOISE if word[0] in "[<" else None


def _last_first(lattice: Lattice) -> List[int]:
    """Return the nodes that are reached from <s>, each behind all that follow it."""
    found: List[int] = []
    entered = set()

    def visit(node: int) -> None:
        entered.add(node)
        for after in lattice.edges.get(node, ()):
            if after not in entered:
                visit(after)
        found.append(node)

    visit(lattice.start)
    return found


def best_paths(lattice: Lattice, trigram: Trigram, weight: float, limit: int) -> Iterator[Path]:
    """Yield the sequences of words, nearly in the order of acoustic + weight * trigram.

    A* search: what is left of a path is estimated by the best way from there with bigrams in the
    trigram's place, so that the order is not quite exact.

    Args:
        limit: of partial paths that are looked at.
    """
    rest = _best_rests(lattice, trigram, weight)
    order = itertools.count()  # so that equals are not compared further
    queue: List[_Partial] = [(0.0, next(order), lattice.start, ("<s>",), 0.0, 0.0)]
    seen: Set[Tuple[int, Tuple[str, ...]]] = set()
    while queue and len(seen) < limit:
        _, _, node, words, acoustic, language = heapq.heappop(queue)
        if (node, words) in seen:
            continue
        seen.add((node, words))
        if node == lattice.end:
            yield Path(words[1:-1], acoustic, language)
        for after, sound in lattice.edges[node].items():
            word, heard = lattice.words[after], acoustic + sound
            if after in rest:
                found = language + trigram(words[-2:], word)
                total = heard + weight * found + rest[after]
                heapq.heappush(queue, (-total, next(order), after, (*words, word), heard, found))


def _best_rests(lattice: Lattice, trigram: Trigram, weight: float) -> Dict[int, float]:
    """Return the best total with bigrams from every word from which </s> is reached."""
    rest = {lattice.end: 0.0}
    for node in _last_first(lattice):
        word = (lattice.words[node],)
        for after, sound in lattice.edges[node].items():
            if after in rest:
                total = sound + weight * trigram(word, lattice.words[after]) + rest[after]
                rest[node] = max(total, rest.get(node, -math.inf))
    return rest
