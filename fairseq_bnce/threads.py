"""Threads of torch: that sleep while they wait, and that a forked process does not have.

Threads of GNU's OpenMP, which torch's wheels bring, spin for milliseconds before they sleep. On a
machine with other work, a spinning thread keeps the processor from the thread it waits for, and a
training takes several times as long. OpenMP reads ``OMP_WAIT_POLICY`` once, when torch is imported,
and a plugin of fairseq comes later. But OpenMP hardly spins once it has more threads than the
process has processors. So this module gives it more threads, which never run again.

A forked process has none of torch's threads, and would wait for them forever. A process that scores
asks :func:`use_one_after_a_fork` first. Forks that do not score keep torch as it was.
"""

import os
import threading

import torch

_CHOICES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")  # set by the user
_GRAIN = 2**15  # numbers for which torch uses a thread
_kept = threading.Event()  # never set
_has_begun = False
_process = os.getpid()


def let_threads_sleep() -> bool:
    """Let torch's threads sleep while they wait, for the rest of the process.

    The number of threads stays, and so do all results.

    Returns:
        Whether this call changed anything: False where there is one thread, where the user has
        chosen, and on a second call.
    """
    global _has_begun
    count = torch.get_num_threads()
    if _has_begun or count == 1 or any(name in os.environ for name in _CHOICES):
        return False
    _has_begun = True
    for _ in range(1 + max(0, (os.cpu_count() or 1) - count) // (count - 1)):
        is_ready = threading.Event()
        threading.Thread(target=_keep_threads, args=(is_ready, count), daemon=True).start()
        is_ready.wait()
    return True


def _keep_threads(is_ready: threading.Event, count: int) -> None:
    """Make the threads of this Python thread, which last as long as it does."""
    torch.ones(2 * count * _GRAIN).exp_()
    is_ready.set()
    _kept.wait()


def use_one_after_a_fork() -> None:
    """Let torch use one thread in a process that was forked; the first call in it alone."""
    global _process
    if _process != os.getpid():
        _process = os.getpid()
        torch.set_num_threads(1)
