"""fairseq's language modeling task for self-normalised models, and contiguous streams."""
