"""Small n-gram models in ARPA files."""

import base64
import itertools
import math
import zlib

from tools import write_lines

# What KenLM's build_binary makes of write_arpa(path, ["w1", "w2"]).
BINARIES = {
    "probing": (
        "c-qU&O)OBz$yLZGDJihh*U!#KO-"
        "##7%}LQq&d=3P&QD2INXswEO)OC;OD!tS%+FIW<zhg9274f}pAks>2Lg}?BUFY7OdhaD7Gp)D8Ibq|b&7i}+e+bT"
        "VPH#+;pbIn`-+&*#JO_5f2=Kjkj;W_)=#FcWg8yUG6UJicV+JfIg)|l*r9WMb+(Zvi|t$jP4-o-"
        "lCw9>v9>+E&)Xg%4*@Kdj3$R}%;Y@1@AN*g^Io6V)nrM`R+zPq;}cUx%SK~ipwj(}yvsU&C1*>6*bF$pENiA~`Ml"
        "TXfb`mw=4IP4*c96_lp8XX8!_1E1DOCoEmvX"
    ),
    "trie": (
        "c-qU&O)OBz$yLZGDJihh*U!#KO-"
        "##7%}LQq&d=3P&QD2INXswEO)OC;OD!tS%+FIW<zhg9274f}pAks>2Lg}?BUFY7Odhajf{KAKD^!jZ$pjWCT~MdE"
        "*RrjYfh*_x$J*it*;{f9Kd(C5SH$|0scYGW2emNu$9HA#2U(0T;n<;beRZ}l-"
        "syebDDsgei}$$%n(SkO@~c+K?KjP_wq;>J1*{C%0W$-"
        "`A3+9&57Sfcr^=f<n$+HAx%h<<S%pn$UbY>BO)(Jb1Br4&hH@hY0NCV51p"
    ),
}


def write_arpa(path, words, has_unk=True):
    """Write a model of 2-grams; the probabilities after each word sum to one."""
    every = [*words, "</s>", *["<unk>"] * has_unk]
    total = sum(1 / rank for rank in range(1, len(every) + 1))
    alone = {word: 1 / rank / total for rank, word in enumerate(every, 1)}
    pairs = {context: {words[(7 * n + 3) % len(words)]: 0.5} for n, context in enumerate(words)}
    pairs = {"<s>": {words[0]: 0.4}, **pairs}
    for after in itertools.islice(pairs.values(), 1, None):
        after["</s>"] = 0.1
    lines = ["\\data\\", f"ngram 1={len(every) + 1}"]
    lines += [f"ngram 2={sum(map(len, pairs.values()))}", "", "\\1-grams:"]
    for word, share in {"<s>": 1e-99, **alone}.items():
        after = pairs.get(word, {})
        back_off = (1 - sum(after.values())) / (1 - sum(alone[other] for other in after))
        lines.append(f"{math.log10(share):.9f}\t{word}\t{math.log10(back_off):.9f}")
    lines += ["", "\\2-grams:"]
    for context, after in pairs.items():
        lines += [f"{math.log10(p):.9f}\t{context} {word}" for word, p in after.items()]
    return write_lines(path, [*lines, "", "\\end\\"])


def write_binary(path, kind):
    path.write_bytes(zlib.decompress(base64.b85decode(BINARIES[kind])))
    return path
