"""What is measured in processes of their own, which import torch: measure.py is their door.

``models`` measures a trained model, ``updates`` a training update, ``layer_speeds`` the bare
output layers of ``layers``; ``meter`` takes times and memory. ``data``, which makes a corpus, and
``as_text``, which writes one as text, are commands of their own.
"""
