"""What a process takes, for programs that import nothing else."""


def memory(field: str = "VmHWM", pid: object = "self") -> int:
    """Bytes: VmHWM is the peak of the process itself, where ru_maxrss may be its parent's."""
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        line = next(line for line in status if line.startswith(f"{field}:"))
    return int(line.split()[1]) * 1024
