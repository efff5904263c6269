"""CPU time and peak memory of this process and of the child processes that it waited for."""

from __future__ import annotations

import contextlib
import re
import resource
from pathlib import Path

RESET_PEAK = "5"  # proc(5), clear_refs
KB_PER_MB = 1024


class Meter:
    """Measures from its creation on.

    If the kernel cannot reset the peak, it is that of the whole process so far.
    """

    def __init__(self) -> None:
        with contextlib.suppress(OSError):
            Path("/proc/self/clear_refs").write_text(RESET_PEAK)
        self._cpu_s = _cpu_s()
        self._children_kb = _children_kb()

    def notes(self) -> dict[str, float]:
        """`cpu_s` of all these processes, and `peak_memory_mb` of the largest."""
        peak_kb = _peak_kb()
        children_kb = _children_kb()
        # the kernel's number covers all children ever: if it has not grown, an earlier child was
        # larger
        if children_kb > self._children_kb:
            peak_kb = max(peak_kb, children_kb)
        peak_mb = peak_kb / KB_PER_MB
        return {"cpu_s": round(_cpu_s() - self._cpu_s, 3), "peak_memory_mb": round(peak_mb, 1)}


def _cpu_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(u.ru_utime + u.ru_stime for u in used)


def _children_kb() -> int:
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss


def _peak_kb() -> int:
    with contextlib.suppress(OSError):
        line = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
        if line:
            return int(line[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
