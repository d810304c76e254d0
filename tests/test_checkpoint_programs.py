"""Nothing in a checkpoint runs: no string of its configuration either, and no file is opened."""

import ast
import os
import re
import shutil
import threading
from pathlib import Path
from types import SimpleNamespace

import fairseq
import pytest
import torch
from checkpoint_edits import CONTAINERS, edited, set_options
from fairseq import checkpoint_utils, utils
from fairseq.models import lstm_lm
from fairseq.modules import SinusoidalPositionalEmbedding
from omegaconf import OmegaConf
from tools import call_command, evaluate, modern

from fairseq_bnce import Scorer
from fairseq_bnce.checkpoints import building, configurations, literals
from fairseq_bnce.scoring import CheckpointError

# The model of scoring_models.FLAGS, the field, and what has fairseq evaluate it.
EVALUATED = [
    ("lstm_lm", "adaptive_softmax_cutoff", {"criterion": "adaptive_loss"}),
    ("transformer_lm", "adaptive_softmax_cutoff", {}),
    ("transformer_lm", "adaptive_input_cutoff", {"adaptive_input": True}),
    ("transformer_lm", "character_filters", {"character_embeddings": True}),
    ("transformer_lm", "decoder_xformers_att_config", {}),
    ("fconv_lm", "decoder_layers", {}),
    ("fconv_lm", "decoder_attention", {}),
    ("lightconv_lm", "decoder_kernel_size_list", {}),
]
LITERALS = {
    "[(512, 4)] * 2 + [(1024, 4)]": [(512, 4), (512, 4), (1024, 4)],
    "((32, 3, 2, 2, True),) * 2": ((32, 3, 2, 2, True),) * 2,
    "10000,50000,200000": (10000, 50000, 200000),
    " [3, 7, -1]\n": [3, 7, -1],
    "(0.9, 1e-8)": (0.9, 1e-8),
    "{'name': 'nystrom', 'landmarks': [2 * 3]}": {"name": "nystrom", "landmarks": [6]},
    "False": False,
    "None": None,
}
PROGRAMS = ["print(1)", "a", "a.b", "a[0]", "[x for x in (1,)]", "lambda: 1", "f'{1}'", "9 ** 9"]
PROGRAMS += ["[1] * 10 ** 9", "*a", "{**a}", "1 if a else 2", "(a := 1)", "${task.data}", "", "\0"]
LARGE = ["[(1, 1)] * 1000000000", "[[1] * 9000] * 9000", "'a' * 10 * 10000000", "1" * 400, "1e999"]
LARGE += ["(" * 4000, "-" * 4000 + "1", "1" + "+1" * 2000, "[" + "1," * 5000 + "]"]


def refusals(path, corpus, task, capsys):
    """What is said at the three doors."""
    with pytest.raises(CheckpointError) as scorer:
        Scorer.from_checkpoint(path, corpus)
    assert call_command("score", "--path", path, "--data", corpus, os.devnull) == 2
    with pytest.raises(CheckpointError) as eval_lm:
        checkpoint_utils.load_model_ensemble_and_task([str(path)], task=task)
    return str(scorer.value), capsys.readouterr().err, str(eval_lm.value)


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("name, field, others", EVALUATED)
def test_a_string_is_found_in_any_container(
    name, field, others, container, language_model, tmp_path
):
    path = edited(
        language_model(name),
        tmp_path / "edited.pt",
        lambda content: set_options(content, **{field: "[print(1)]"}, **others),
        container,
    )
    content = torch.load(path, weights_only=False)
    with pytest.raises(CheckpointError, match=rf"{field}: required a literal.*got '\[print\(1\)\]"):
        configurations.check(content["cfg"] or content["args"], "some.pt")


# What is said at the doors: of each field in fairseq's container of today, of one in older ones.
IN_CONTAINERS = [(*evaluated, "dict") for evaluated in EVALUATED]
IN_CONTAINERS += [(*EVALUATED[0], container) for container in CONTAINERS if container != "dict"]


@pytest.mark.parametrize("name, field, others, container", IN_CONTAINERS)
def test_no_string_is_run(
    name, field, others, container, corpus, language_model, task, tmp_path, capsys
):
    made = tmp_path / "made"
    program = f"[__import__('os').mkdir({str(made)!r})]"
    path = edited(
        language_model(name),
        tmp_path / "edited.pt",
        lambda content: set_options(content, **{field: program}, **others),
        container,
    )
    for said in refusals(path, corpus, task, capsys):
        assert f"{field}: required a literal" in said and "got \"[__import__('os')" in said
    assert not made.exists()


@pytest.mark.parametrize("way", ["in shards", "read before", "by another task"])
def test_nor_in_any_other_way_that_fairseq_loads(way, corpus, language_model, task, tmp_path):
    """Under --checkpoint-shard-count, as a content, by fairseq-generate of a translation task."""
    made = tmp_path / "made"
    program = f"[__import__('os').mkdir({str(made)!r})]"
    path = edited(
        language_model("fconv_lm"),
        tmp_path / "evil_part0.pt",
        lambda content: set_options(content, decoder_layers=program),
    )
    named, options, given = path, {}, [task, None]
    if way == "in shards":
        shutil.copy(path, tmp_path / "evil_part1.pt")
        named, options = tmp_path / "evil.pt", {"num_shards": 2, "strict": False}
    elif way == "read before":
        options = {"state": checkpoint_utils.load_checkpoint_to_cpu(str(path))}
    else:
        build = lambda options: eval(options.decoder_layers)  # noqa: E731
        given = [SimpleNamespace(load_state_dict=lambda state: None, build_model=build)]
    for one in given:
        with pytest.raises(CheckpointError, match="configuration: required a literal.*__import__"):
            checkpoint_utils.load_model_ensemble_and_task([str(named)], task=one, **options)
    assert not made.exists()


def test_the_command_eval_lm(corpus, language_model, tmp_path):
    others = {"criterion": "adaptive_loss"}
    made = tmp_path / "made"
    program = f"__import__('os').mkdir({str(made)!r})"
    path = edited(
        language_model("lstm_lm"),
        tmp_path / "edited.pt",
        lambda content: set_options(content, adaptive_softmax_cutoff=program, **others),
    )
    said = evaluate(corpus, path, check=False)
    assert "adaptive_softmax_cutoff: required a literal" in said.splitlines()[-1]
    assert not made.exists()


def test_a_literal_of_16_gigabytes(corpus, language_model, task, tmp_path, capsys):
    large = {"adaptive_softmax_cutoff": LARGE[0], "criterion": "adaptive_loss"}
    path = edited(
        language_model("lstm_lm"), tmp_path / "e.pt", lambda content: set_options(content, **large)
    )
    for said in refusals(path, corpus, task, capsys):
        assert "adaptive_softmax_cutoff: required a literal" in said


@pytest.mark.parametrize("program", [b"print(1)", bytearray(b"print(1)")])
def test_bytes_are_evaluated_too(program):
    with pytest.raises(CheckpointError, match=r"model\.decoder_layers: required a literal"):
        configurations.check({"model": {"decoder_layers": program}}, "some.pt")


REFERENCES = [
    "${oc.env:HOME}",
    "${task.data}${task.data}",
    "${nothing.there}",
    "${model.other}",  # which refers to another, and might double what that is
    "${model}",
]


@pytest.mark.parametrize("container", ["dict", "DictConfig"])
@pytest.mark.parametrize("reference", REFERENCES)
def test_omegaconf_calls_nothing_and_copies_without_end_nothing(
    reference, container, corpus, language_model, task, tmp_path, capsys
):
    options = {"decoder_embed_path": reference, "other": "${task.data}"}
    path = edited(
        language_model("rnn_lm"),
        tmp_path / "edited.pt",
        lambda content: set_options(content, **options),
        container,
    )
    for said in refusals(path, corpus, task, capsys):
        assert "model.decoder_embed_path: required a value, or ${...} with the name" in said


def test_a_name_of_a_field_stands_for_it(corpus, language_model, tmp_path):
    """As in checkpoints of 2021."""
    path = edited(
        language_model("rnn_lm"),
        tmp_path / "edited.pt",
        lambda content: set_options(content, other="${task.data}", lr="${optimization.lr}"),
        "DictConfig",
    )
    assert Scorer.from_checkpoint(path, corpus).score(["w1"]) < 0


def test_many_names_of_large_fields():
    task = {"large": list(range(1000)), **{f"a{i}": "${task.large}" for i in range(101)}}
    with pytest.raises(CheckpointError, match="at most 100,000 fields, got one of more"):
        configurations.check({"task": task}, "some.pt")


_OF_ITS_SIZE = "required a configuration of a model of the size of its parameters"


@pytest.mark.parametrize(
    "name, field, size",
    [
        ("rnn_lm", "decoder_layers", 10**7),
        ("lstm_lm", "decoder_layers", 10**7),
        *modern(
            ("lstm_lm", "decoder_layers", 10**18),
            ("fconv_lm", "decoder_layers", 10**7),
            ("lstm_lm", "decoder_hidden_size", 10**18),
            ("transformer_lm", "max_target_positions", 10**7),
            ("transformer_lm", "max_target_positions", 3 * 10**6),
        ),
    ],
)
def test_sizes_that_no_memory_holds(
    name, field, size, corpus, language_model, task, tmp_path, capsys
):
    """A model is as large as its parameters, whatever its configuration says."""
    sizes = {field: f"[({size}, 3)]" if name == "fconv_lm" else size}
    path = edited(
        language_model(name), tmp_path / "e.pt", lambda content: set_options(content, **sizes)
    )
    # Our own architectures know a bound.
    required = "--decoder-layers: required at most 1,000" if name == "rnn_lm" else _OF_ITS_SIZE
    for said in refusals(path, corpus, task, capsys):
        assert required in said


def test_layers_without_numbers(corpus, language_model, task, tmp_path, capsys):
    sizes = {"decoder_layers": 5000, "decoder_hidden_size": 0}
    path = edited(
        language_model("lstm_lm"), tmp_path / "e.pt", lambda content: set_options(content, **sizes)
    )
    for said in refusals(path, corpus, task, capsys):
        assert _OF_ITS_SIZE in said


_MILLION = torch.zeros(10**6)
MAKERS = {
    "a product": lambda: torch.zeros(3000, 1) * torch.zeros(1, 3000),
    "positions": lambda: SinusoidalPositionalEmbedding(64, 1, 10**5),
    "a join": lambda: torch.cat([_MILLION] * 5),
    "many without numbers": lambda: [torch.empty(0) for _ in range(5000)],
}


@pytest.mark.parametrize("kind", MAKERS)
def test_what_counts_while_a_model_is_built(kind):
    said = f"{_OF_ITS_SIZE}, got one of over 4,194,304"
    with pytest.raises(CheckpointError, match=said), building.guarded({}, {}, "c.pt"):
        MAKERS[kind]()


def test_parameters_of_several_names_count_once():
    shared = {str(number): _MILLION[number:] for number in range(100)}
    said = "got one of over 8,194,304"
    with pytest.raises(CheckpointError, match=said), building.guarded(shared, {}, "c.pt"):
        torch.empty(10**7)


def test_positions_of_usual_models_are_built(corpus, language_model, tmp_path):
    """1024 of them, as by default: in a model of 1024 numbers a word, and in a tiny one."""
    with building.guarded({}, {}, "c.pt"):
        assert len(SinusoidalPositionalEmbedding(1024, 1, 1026).weights) == 1026
    path = edited(
        language_model("transformer_lm"),
        tmp_path / "e.pt",
        lambda content: set_options(content, max_target_positions=1024, tokens_per_sample=1024),
    )
    assert Scorer.from_checkpoint(path, corpus).score(["w1"]) < 0


def doubled(times):
    """A list of 2**times places, which is small in memory and in a file."""
    grown = [0]
    for _ in range(times):
        grown = [grown, grown]
    return grown


@pytest.mark.parametrize("container", ["dict", "Namespace"])
def test_lists_that_hold_others_twice(
    container, corpus, language_model, task, tmp_path, capsys, monkeypatch
):
    def grow(content):
        if container == "dict":
            set_options(content, grown=doubled(18))
        else:
            content["args"].grown = doubled(18)

    path = edited(language_model("lstm_lm"), tmp_path / "e.pt", lambda content: None, container)
    edited(path, path, grow)
    assert path.stat().st_size < 10**6
    monkeypatch.setattr(OmegaConf, "create", None)  # which copies each place
    for said in refusals(path, corpus, task, capsys):
        assert "required a configuration of at most 100,000 fields, got one of more" in said


def test_nodes_that_hold_others_twice():
    grown = OmegaConf.create([0])
    for _ in range(18):
        twice = OmegaConf.create([])
        twice.__dict__["_content"] = [grown, grown]
        grown = twice
    with pytest.raises(CheckpointError, match="some.pt: required a configuration of at most"):
        configurations.check(grown, "some.pt")


def test_an_architecture_that_evaluates_another_field(
    corpus, language_model, task, tmp_path, capsys, monkeypatch
):
    """One added later, say: no list has to know its name."""
    whole = lstm_lm.LSTMLanguageModel.build_model.__func__

    def build_model(cls, args, task):
        eval(args.new_field)
        return whole(cls, args, task)

    monkeypatch.setattr(lstm_lm.LSTMLanguageModel, "build_model", classmethod(build_model))
    made = tmp_path / "made"
    new = {"new_field": f"__import__('os').mkdir({str(made)!r})"}
    path = edited(
        language_model("lstm_lm"), tmp_path / "e.pt", lambda content: set_options(content, **new)
    )
    for said in refusals(path, corpus, task, capsys):
        assert "new_field: required a literal" in said
    assert not made.exists()
    new["new_field"] = "[(1, 2)] * 2"
    edited(language_model("lstm_lm"), path, lambda content: set_options(content, **new))
    assert Scorer.from_checkpoint(path, corpus).score(["w1"]) < 0


@pytest.mark.parametrize("text", LITERALS)
def test_literals(text):
    assert literals.literal(text) == LITERALS[text]
    assert literals.literal(text.encode()) == LITERALS[text]


@pytest.mark.parametrize("text", PROGRAMS + LARGE, ids=lambda text: text[:12])
def test_what_is_no_literal(text):
    with pytest.raises(literals.NotALiteral) as caught:
        literals.literal(text)
    assert caught.value.text == text


def test_eval_is_what_it_was_outside_of_building():
    before = eval
    with literals.evaluating_literals():
        assert utils.eval_str_list("[1] * 2", int) == [1, 1]
        assert eval("before", {"before": 3}) == 3  # a library that brings its own names
        found = []
        other = threading.Thread(target=lambda: found.append(eval("max(3, 4)")))
        other.start()
        other.join()
        assert found == [4]  # what another thread does meanwhile is no checkpoint's
        with pytest.raises(literals.NotALiteral), literals.evaluating_literals():
            utils.eval_bool("before")
    assert eval("before") is before is eval


@pytest.mark.parametrize("kind", ["missing", "pipe"])
@pytest.mark.parametrize("container", ["dict", "Namespace"])
def test_no_file_is_opened(kind, container, corpus, language_model, task, tmp_path):
    """What embeddings started from is no business of scoring; a pipe would wait for ever."""
    file = tmp_path / "embeddings"
    if kind == "pipe":
        os.mkfifo(file)
    paths = {"decoder_embed_path": str(file), "encoder_embed_path": str(file)}
    path = edited(
        language_model("lstm_lm"),
        tmp_path / "edited.pt",
        lambda content: set_options(content, **paths),
        container,
    )
    want = Scorer.from_checkpoint(language_model("lstm_lm")).score(["w1 w2"])
    assert Scorer.from_checkpoint(path, corpus).score(["w1 w2"]) == want
    (model,), _, _ = checkpoint_utils.load_model_ensemble_and_task([str(path)], task=task)
    trained = torch.load(path, weights_only=False)["model"]["decoder.embed_tokens.weight"]
    assert model.decoder.embed_tokens.weight.equal(trained)


def test_components_that_are_not_known_are_not_looked_for(corpus, language_model, task, tmp_path):
    """hydra reads a file for a group's choice."""
    (tmp_path / "bpe.yaml").write_text("_name: [", encoding="utf-8")

    def choose(content):
        content["args"].bpe = os.path.relpath(tmp_path, Path(fairseq.__file__).parent / "config")

    path = edited(language_model("rnn_lm"), tmp_path / "e.pt", lambda content: None, "Namespace")
    edited(path, path, choose)
    assert Scorer.from_checkpoint(path, corpus).score(["w1"]) < 0
    assert checkpoint_utils.load_model_ensemble_and_task([str(path)], task=task)[0]


def test_an_architecture_for_other_tasks(corpus, language_model, task, tmp_path, capsys):
    """Some of fairseq's would open a file of pretrained parameters, as pickled by whomever."""
    path = edited(
        language_model("rnn_lm"),
        tmp_path / "edited.pt",
        lambda content: set_options(content, _name="wav2vec_ctc", w2v_path=str(tmp_path / "no.pt")),
    )
    for said in refusals(path, corpus, task, capsys):
        assert "required a model of an architecture for language modeling, got wav2vec_ctc" in said


_EVALUATORS = {"eval", "exec", "compile", "eval_str_list", "eval_str_dict", "eval_bool"}
# Lines of data files, and the arguments of what evaluates for others.
_NO_FIELDS = {"line.strip()", "x", "uf"}
# Of RawAudioDataset, in fairseq 0.12.2.
_PASSED_ON = {'mask_compute_kwargs["conv_feature_layers"]': "conv_feature_layers"}


def evaluated_in(source):
    """What is handed to eval() and its like, as it is written."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and node.args and _called(node.func) in _EVALUATORS:
            yield ast.get_source_segment(source, node.args[0])


def _called(function):
    if isinstance(function, ast.Attribute):
        own = isinstance(function.value, ast.Name) and function.value.id in ("utils", "options")
        return function.attr if own else None
    return getattr(function, "id", None)


def test_every_string_that_fairseq_evaluates_is_known():
    """From its source, so that one more is noticed; examples are loaded by a user alone."""
    root = Path(fairseq.__file__).parent
    sources = [
        path for path in root.rglob("*.py") if "examples" not in path.relative_to(root).parts
    ]
    found = {text for path in sources for text in evaluated_in(path.read_text(encoding="utf-8"))}
    fields = {_PASSED_ON.get(text, text.split(".")[-1]) for text in found - _NO_FIELDS}
    assert len(fields) > 20
    assert fields <= configurations.EVALUATED


# Options with such names that are none: yes or no, or a place among tensors.
_NO_PATHS = {"checkpoint_activations", "no_pretrained_weights", "pretrained", "input_from"}
_NO_PATHS |= {"negatives_from_everywhere", "encoder_bidirectional"}


def test_every_path_of_a_model_is_closed():
    """Found by their names in the source of fairseq's models."""
    root = Path(fairseq.__file__).parent / "models"
    text = "\n".join(path.read_text(encoding="utf-8") for path in root.rglob("*.py"))
    like = r"\b(?:args|cfg)\.(\w*(?:path|file|dir|pretrained|checkpoint|_from)\w*)"
    found = set(re.findall(like, text))
    assert {"decoder_embed_path", "w2v_path", "load_pretrained_decoder_from"} < found
    assert {name for name in found if not configurations.is_opened(name)} <= _NO_PATHS
