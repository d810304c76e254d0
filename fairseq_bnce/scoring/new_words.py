"""Rows for words that a trained model does not know.

The model is frozen, and only rows of the new words are fitted, to the contexts of a text. New words
take their probability from <unk>, which stood for them so far. After a context with the partition
function Z_c of the old words, a new word v has the probability

    exp m(v, c) / (Z_c - (1 - r) exp m(<unk>, c) + sum_u exp m(u, c)),

with the sum over new words u, and the share r of <unk>'s probability that <unk> keeps. So scores of
other old words do not change, and their probabilities nearly stay. With squashed scores, r holds
only in the mean over contexts.

A model with tied embeddings and no output bias keeps <unk> unchanged (r = 1), because its row is
also read: another row would change old words' scores after <unk>. New words then take their
probability from all words.
"""

import itertools
import logging
import math
from typing import Any, Callable, Dict, Iterable, NamedTuple, Sequence, Tuple, Union

import torch
from fairseq.data import Dictionary
from fairseq.modules import AdaptiveInput
from torch import Tensor

from fairseq_bnce import checkpoints, losses
from fairseq_bnce.checkpoints import Trained, dictionaries
from fairseq_bnce.errors import UnsupportedModelError
from fairseq_bnce.scoring.reduction import minimised
from fairseq_bnce.scoring.scorer import Scorer
from fairseq_bnce.state import ScoringState

logger = logging.getLogger(__name__)
_RAREST = 1000  # words of the last band, whose mean row a new row starts from
_NEAREST = 20  # words whose mean embedding a new word gets
_HALF = 2048  # contexts of an update with a new word, and as many with old words
_UPDATES, _RATE = 300, 0.02
_PRIOR = 1.0  # weight of the squared distance from the start, beside the log-likelihood
_RIDGE = 0.01
_LEAST = 0.1  # the share of its probability that <unk> keeps at least
_UNSEEN = 0.5  # occurrences of a word that the text lacks
_SPLIT = 0.5  # the share of <unk>'s probability that new words get without a text
_MOST_SCORES = 2**22  # scores held at once in the search for constants
_HALVINGS = 32  # how often the search halves its reach from a first guess
_REACH, _SQUASHED_REACH = 64.0, float(losses.unsquashed(torch.tensor(99.0)))
_MISSED = 0.01  # nats off a wanted probability, to be reported


class Contexts(NamedTuple):
    """N contexts of a text.

    Attributes:
        inputs: (N, d), which the rows of new words multiply.
        offset: (N,), which is added to their scores.
        log_z, unk: (N,) log Z_c of the old words, nats, and the score of <unk> before squashing.
        words: (N,) the number of the new word that came, -1 for an old word.
        weight: (N,) how many contexts of the text each stands for.
    """

    inputs: Tensor
    offset: Tensor
    log_z: Tensor
    unk: Tensor
    words: Tensor
    weight: Tensor

    def mean(self, values: Tensor) -> float:
        """Return the mean over the text of ``values`` (N,)."""
        return float((values.double() @ self.weight.double()) / self.weight.double().sum())


class Extension(NamedTuple):
    """Changes of a model for n new words.

    Attributes:
        output, bias, inputs: (n, d) of the output layer, (n,) biases, which are 0 where the layer
            has none, and (n, d') embeddings.
        unk: to be added to <unk>'s number or row of the parameters :attr:`RowFinder.of_unk`.
        growth: (N,) by how much log Z_c grows after the contexts of the text, nats, where these
            are read as before.
    """

    output: Tensor
    bias: Tensor
    inputs: Tensor
    unk: Union[float, Tensor]
    growth: Tensor


class RowFinder:
    """Finds rows for new words of a model.

    Args:
        trained, options: as a :class:`Scorer` takes them.

    Attributes:
        scorer: of the model.
        names: for output, bias and inputs, the checkpoint's names of the parameter that grows.
            A tied parameter is an output.
        of_unk: names of the parameter that changes for <unk>: the bias, or else rows that the
            model does not read; none of a tied model without a bias.

    Raises:
        UnsupportedModelError: for a model without a stored row for each word, on both sides.
    """

    def __init__(self, trained: Trained, **options: Any):
        stored = trained.model.state_dict(keep_vars=True)  # which lacks rows after the next line
        self.scorer = Scorer(trained, **options)
        self._unk, self._layer = trained.source.unk(), self.scorer._reader.layer
        self._layer.check_trained_here("--path")
        *bands, self._table = self._layer.kind.tables()
        embeddings = self._layer.decoder.embed_tokens
        self._first_read = 0
        if isinstance(embeddings, AdaptiveInput):
            self._first_read = [0, *embeddings.cutoff][-2]
            embeddings = embeddings.embeddings[-1][0]
        self._read: Any = getattr(embeddings, "weight", None)
        growing = (self._layer.parameters()[len(bands)], self._layer.bias, self._read)
        named = [[name for name, own in stored.items() if own is found] for found in growing]
        if not (named[0] and named[2]) or len(trained.target) != len(trained.source):
            required = "a model with a stored row for each word that it reads and predicts"
            got = "--output-dictionary-size, weight normalisation or character embeddings"
            raise UnsupportedModelError(f"--path: required {required}, got {got}")
        self.is_tied = growing[0] is growing[2]
        self.names = dict(zip(Extension._fields[: 2 if self.is_tied else 3], named))
        self.of_unk = self.names["bias"] or ([] if self.is_tied else self.names["output"])

    def contexts(
        self, lines: Sequence[Tuple[str, float]], words: Iterable[str], shown: Callable
    ) -> Contexts:
        """Read lines, each with its weight, in which ``words`` are the new words.

        ``shown`` returns the windows of scores that it gets, and may show how many there are.
        """
        number_of = {word: number for number, word in enumerate(words)}
        parts, numbers, weights = [], [], []
        texts = (line for line, _ in lines)
        windows = shown(self.scorer.measuring(self._measure).score_windows(texts, tokenized=True))
        for found, (_, weight) in zip(itertools.chain.from_iterable(windows), lines):
            parts.append(torch.from_numpy(found.log_probs).float())
            numbers += [number_of.get(word, -1) for word in found.words]
            weights += [weight] * len(found.words)
        whole = torch.cat(parts)
        inputs, (offset, log_z, unk) = whole[:, :-3], whole[:, -3:].unbind(1)
        return Contexts(inputs, offset, log_z, unk, torch.tensor(numbers), torch.tensor(weights))

    @torch.no_grad()
    def extension(self, contexts: Contexts, counts: Sequence[int], tokens: int) -> Extension:
        """Return the changes for new words.

        Args:
            contexts: of a text or of a part of it.
            counts: of each new word in the whole text.
            tokens: number of words in the whole text, with ``</s>``.
        """
        fit = _Fit(contexts, self._layer.kind.is_squashed, not self.names["bias"])
        number = torch.tensor(counts).clamp(min=_UNSEEN)
        share = float(number.sum()) / tokens if any(counts) else _SPLIT * fit.of_unk
        keep = max(_LEAST, 1 - share / fit.of_unk) if self.of_unk else 1.0
        shift = fit.shifted_unk(keep)
        found = fit.start(self._first_row(), (number / number.sum() * share).log())
        found = fit.fitted(*found, share) if any(counts) else found
        growth = fit.growth(*found)
        output, bias = fit.stored(*found)
        unk = fit.constant * shift if fit.in_rows else shift
        inputs = output if self.is_tied else self._embeddings(output)
        return Extension(output, bias, inputs, unk, growth)

    def extended(self, path: str, found: Extension, dictionary: Dictionary) -> Dict[str, Any]:
        """Return the content of the model's checkpoint with the new words' parameters."""
        content = checkpoints.read(path)
        content.pop("last_optimizer_state", None)  # the optimiser has no rows of new words
        parameters = content["model"]
        if self.of_unk:  # the names of one parameter
            rows = parameters[self.of_unk[0]].clone()
            rows[self._unk] += found.unk
            parameters.update(dict.fromkeys(self.of_unk, rows))
        for kind, names in self.names.items():
            if names:
                old, added = parameters[names[0]], getattr(found, kind)
                parameters.update(dict.fromkeys(names, torch.cat([old, added.to(old)])))
        content["task_state"] = content.get("task_state") or {}
        state = ScoringState(content["task_state"])
        state.data_folder, state.dictionary_sha256 = None, dictionaries.checksum(dictionary)
        return content

    def _measure(self, features: Tensor, targets: Tensor) -> Tensor:
        """Return (N, d + 3): inputs, offset, log Z_c and the score of <unk>, see Contexts."""
        table, layer = self._table, self._layer
        inputs, unk = layer.kind.inputs(features).float(), torch.full_like(targets, self._unk)
        offset = inputs.new_zeros(len(inputs)) if table.offset is None else inputs[:, table.offset]
        log_z = layer.log_partition(features).float()
        score = layer.target_scores(features, unk, is_raw=True).float()
        return torch.column_stack([inputs[:, table.columns], offset, log_z, score])

    def _first_row(self) -> Tensor:
        """Return the row of <unk>, or a mean of rare words' rows where these are shorter."""
        rows = self._table.weight.float().cpu()
        return rows[-_RAREST:].mean(0) if self._table.first else rows[self._unk]

    def _embeddings(self, output: Tensor) -> Tensor:
        """Return the mean embeddings of words whose output rows resemble the new ones."""
        first = max(self._table.first, self._first_read, self.scorer.dictionary.nspecial)
        old = self._table.weight[first - self._table.first :].float().cpu()
        read = self._read[first - self._first_read :].float().cpu()
        mean, most = old.mean(0), min(_NEAREST, len(old))
        near = [((old - mean) @ (row - mean)).topk(most).indices for row in output]
        return torch.stack([read[ids].mean(0) for ids in near])


class _Fit:
    """The likelihood of new words' rows in the contexts of a text.

    Args:
        contexts: of the text.
        squash: whether scores are squashed.
        in_rows: whether there is no bias. A constant part of each row then is the bias: what
            multiplies it is a linear function of the inputs, near 1 in all contexts.

    Attributes:
        of_unk: the mean probability of <unk>.
    """

    def __init__(self, contexts: Contexts, squash: bool, in_rows: bool):
        self._contexts, self._squash, inputs = contexts, squash, contexts.inputs
        self.constant = torch.zeros_like(inputs[0])
        self._ones = torch.ones(len(inputs))
        if in_rows:
            square = inputs.t() @ inputs
            square.diagonal().add_(_RIDGE * square.diagonal().mean())
            self.constant = torch.linalg.solve(square, inputs.sum(0))
            self._ones = inputs @ self.constant
        self.in_rows = in_rows
        self.of_unk = contexts.mean(self._relative(contexts.unk).exp())
        self._others = torch.zeros(len(inputs))  # log of the share that old words keep
        self._is_new = contexts.words >= 0
        self._generator = torch.Generator().manual_seed(1)

    def shifted_unk(self, keep: float) -> float:
        """Return the constant with which <unk> keeps a share of its mean probability."""
        unk, shift = self._contexts.unk, 0.0
        if keep < 1:
            shift = float(self._constants(unk, torch.tensor([math.log(keep * self.of_unk)])))
            before, after = (self._relative(unk + n * shift * self._ones).exp() for n in (0, 1))
            self._others = torch.log1p(after - before)
        return shift

    def start(self, row: Tensor, log_q: Tensor) -> Tuple[Tensor, Tensor]:
        """Return one row for all new words, and biases that make their mean probability q."""
        scores = self._contexts.inputs @ row + self._contexts.offset
        return row.expand(len(log_q), -1), self._constants(scores, log_q)

    def fitted(self, start: Tensor, bias: Tensor, share: float) -> Tuple[Tensor, Tensor]:
        """Fit rows (n, d) and biases (n,) by maximum likelihood, near their start."""
        new, old = (found.nonzero()[:, 0] for found in (self._is_new, ~self._is_new))

        def loss(rows: Tensor, bias: Tensor) -> Tensor:
            places = [self._some(new), self._some(old)]
            scores = self._scores(torch.cat(places), rows, bias)
            log_z = torch.logaddexp(self._others[torch.cat(places)], scores.logsumexp(1))
            words = self._contexts.words[places[0]]
            own = scores[: len(words)].gather(1, words[:, None])[:, 0]
            of_new, of_old = log_z.split([len(one) for one in places])
            distance = (rows - start).square().sum() / len(new)
            of_words = (of_new - own).mean() + _PRIOR / 2 * distance
            return share * of_words + (1 - share) * of_old.mean()

        rows, bias = minimised(loss, (start, bias), _UPDATES, _RATE)
        return rows, bias

    def growth(self, rows: Tensor, bias: Tensor) -> Tensor:
        """Return by how much log Z_c grows: (N,) nats."""
        parts = torch.arange(len(self._others)).split(2 * _HALF)
        new = torch.cat([self._scores(part, rows, bias).logsumexp(1) for part in parts])
        return torch.logaddexp(self._others, new)

    def stored(self, rows: Tensor, bias: Tensor) -> Tuple[Tensor, Tensor]:
        """Return rows and biases as the layer stores them."""
        return rows + bias[:, None] * self.constant, bias * (not self.in_rows)

    def _scores(self, places: Tensor, rows: Tensor, bias: Tensor) -> Tensor:
        """Return m(v, c) - log Z_c after some contexts: (M, n)."""
        inputs, offset = (part[places] for part in self._contexts[:2])
        scores = inputs @ rows.t() + self._ones[places, None] * bias + offset[:, None]
        return self._relative(scores, places)

    def _relative(self, scores: Tensor, places: Union[Tensor, slice] = slice(None)) -> Tensor:
        """Return m - log Z_c of scores before squashing, (M,) or (M, n), after some contexts."""
        scores = losses.squashed(scores) if self._squash else scores
        return (scores.t() - self._contexts.log_z[places]).t()

    def _constants(self, scores: Tensor, wanted: Tensor) -> Tensor:
        """Return (n,) numbers that, added to scores (N,), make the mean probabilities wanted.

        Args:
            scores: before squashing.
            wanted: (n,) logarithms.
        """
        aims, word = wanted.double().unique(return_inverse=True)
        some = torch.randperm(len(scores), generator=self._generator)
        some = some[: max(_HALF, _MOST_SCORES // len(aims))]
        parts = (scores, self._ones, self._contexts.weight, self._contexts.log_z)
        scores, ones, weight, log_z = (part[some, None].double() for part in parts)
        reach, middle = _REACH, aims + log_z.mean() - scores.mean()
        if self._squash:  # there is almost no slope farther away
            reach, middle = _SQUASHED_REACH, -scores.mean().expand_as(aims)
        for _ in range(_HALVINGS):
            found = self._relative(scores + ones * middle, some)
            reached = (found + (weight / weight.sum()).log()).logsumexp(0)
            reach /= 2
            middle = middle + torch.where(reached < aims, reach, -reach)
        if self._squash and not torch.allclose(reached, aims, atol=_MISSED, rtol=0):
            got = f"{float(reached.min().exp()):.2g} instead of {float(aims.min().exp()):.2g}"
            reason = "scores end at -10 and 10, so that words cannot get the wanted probability"
            logger.warning(f"--score-squashing: {reason} ({got})")
        return middle[word].float()

    def _some(self, places: Tensor) -> Tensor:
        weight = self._contexts.weight[places]
        return places[torch.multinomial(weight, _HALF, True, generator=self._generator)]
