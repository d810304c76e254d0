"""What is measured in processes of their own, which import torch: measure.py starts them.

``models`` measures a trained model, ``updates`` a training update; ``layers`` has bare output
layers, for gpu_run.py; ``meter`` takes times and memory. ``data``, which makes a corpus, is a
command of its own.
"""
