"""What is measured in processes of their own, which import torch: processes.call starts them.

``models`` measures a trained model, ``updates`` a training update; ``data`` makes a corpus;
``layers`` has bare output layers, for gpu_run.py; ``meter`` takes times and memory.
"""
