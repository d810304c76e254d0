"""The corpora that language models over large vocabularies are measured on, as recipes.

``table`` has them: where each comes from, how its text is read, what is published about it.
``fetch`` finds or downloads an archive, ``archives`` reads it as streams; ``sentences``,
``novels`` and ``wikipedia`` clean text; ``recipe`` makes the data of a corpus, by
:mod:`fairseq_bnce.data.preparation`. Nothing here imports torch or fairseq.
"""
