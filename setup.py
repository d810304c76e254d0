"""Packaging of fairseq-bnce. fairseq itself is an extra: see README.md."""

import re
from pathlib import Path

from setuptools import find_namespace_packages, setup

HERE = Path(__file__).parent
VERSION = re.search(
    r'__version__ = "(.+)"', (HERE / "fairseq_bnce" / "version.py").read_text(encoding="utf-8")
).group(1)

# A plain install never brings a fairseq: it would be laid over a user's own, since stock fairseq
# and fairseq-fixed are two distributions of one package.
FAIRSEQ = [
    'fairseq==0.12.2; python_version < "3.11"',
    'numpy<1.24; python_version < "3.11"',
    'fairseq-fixed==0.12.3.1; python_version >= "3.11"',
]
PLOT = ["matplotlib"]
# Measures that fairseq-bnce rescore tunes for; sacrebleu comes with fairseq, too.
RESCORE = ["sacrebleu>=2", "jiwer>=3"]
# Decoders that fairseq_bnce.decoding has language models for, and KenLM to compare with.
DECODING = ['flashlight-text; python_version < "3.13"', "pyctcdecode", "kenlm"]
# What scripts/bench_output_layer.py compares with, on a GPU.
BENCH = [
    'liger-kernel; python_version >= "3.10"',
    'cut-cross-entropy; python_version >= "3.10"',
    *PLOT,
]

setup(
    name="fairseq-bnce",
    version=VERSION,
    description="Noise-contrastive training and softmax-free scoring of language models in fairseq",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="MIT",
    license_files=["LICENSE"],
    packages=find_namespace_packages(include=["fairseq_bnce*", "hydra_plugins*"]),
    scripts=["scripts/fairseq-bnce"],  # no entry point: those import the package first
    python_requires=">=3.8",
    # The last two, light ones, for text: fairseq-bnce prepare-text, get-data and score.
    install_requires=["torch>=1.13", "numpy", "sacremoses", "tqdm"],
    extras_require={
        "fairseq": FAIRSEQ,
        "plot": PLOT,
        "rescore": RESCORE,
        "decoding": DECODING,
        "bench": BENCH,
        "dev": ["pytest", "pytest-timeout", "ruff", *PLOT, *RESCORE],
    },
    classifiers=[
        "Programming Language :: Python :: 3",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
)
