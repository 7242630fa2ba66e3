"""What the operating system says of this computer: processor, cores, instructions, cache and memory.

Linux is read from /proc and /sys, macOS from ``sysctl``, Windows from ``kernel32``; what cannot be found out is absent.
No other program is run. What a container may not use (CPUs, memory) does not count.
"""

from __future__ import annotations

import ctypes
import math
import os
import platform
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rooflinellm import units

FLAGS = (
    *("amx_int8", "amx_bf16", "avx512_bf16", "avx512_vnni", "avx512f", "avx_vnni", "avx2", "avx", "fma", "f16c"),
    *("asimd", "asimddp", "asimdhp", "i8mm", "bf16", "sve"),
)
"""Instruction sets that matter to matrix products, as Linux names them."""

_MAC_FLAGS = {
    "hw.optional.avx2_0": "avx2",
    "hw.optional.avx512f": "avx512f",
    "hw.optional.fma": "fma",
    "hw.optional.f16c": "f16c",
    "hw.optional.arm.AdvSIMD": "asimd",
    "hw.optional.arm.FEAT_DotProd": "asimddp",
    "hw.optional.arm.FEAT_FP16": "asimdhp",
    "hw.optional.arm.FEAT_I8MM": "i8mm",
    "hw.optional.arm.FEAT_BF16": "bf16",
}
_WINDOWS_FLAGS = {39: "avx", 40: "avx2", 41: "avx512f", 19: "asimd", 43: "asimddp"}
"""By the number that `IsProcessorFeaturePresent` takes (PF_AVX2_INSTRUCTIONS_AVAILABLE and others in winnt.h)."""

_CACHE_SIZE = re.compile(r"(?P<number>\d+)(?P<unit>[KMG]?)")
_UNIT_BYTES = {"": 1, "K": units.KIB, "M": units.MIB, "G": units.GIB}
_HUGE = 2**60
"""A limit of memory beyond this is none. [byte]"""


@dataclass(frozen=True)
class Computer:
    """A computer, as its operating system describes it to this process.

    Attributes
    ----------
    name : str
        The processor's.
    system : str
        Operating system and machine type.
    isa : tuple of str
        Those of `FLAGS` that it has, in their order.
    threads : int
        Hardware threads that the process may use. [-]
    cores : int
        Cores that these belong to; as many as threads where the system does not tell. [-]
    cache_bytes : int or None
        Last-level cache of these cores. [byte]
    memory_bytes : int or None
        Memory of the computer, or of its container. [byte]
    available_bytes : int or None
        What a program can get of it now. [byte]
    """

    name: str
    system: str
    isa: tuple[str, ...]
    threads: int
    cores: int
    cache_bytes: int | None = None
    memory_bytes: int | None = None
    available_bytes: int | None = None


def this_computer(root: Path = Path("/")) -> Computer:
    """Ask the operating system.

    Parameters
    ----------
    root : Path
        Where ``proc`` and ``sys`` lie (Linux).
    """
    if sys.platform == "darwin":
        return _mac()
    if sys.platform == "win32":
        return _windows()
    return _linux(root)


def _ordered(flags: Iterable[str]) -> tuple[str, ...]:
    known = set(flags)
    return tuple(flag for flag in FLAGS if flag in known)


def _system() -> str:
    return f"{platform.system()} {platform.release()}, {platform.machine()}"


# --- Linux ----------------------------------------------------------------------------------------------------------


def _linux(root: Path) -> Computer:
    facts: dict[str, str] = {}  # of the first processor that states them
    for line in _text(root / "proc/cpuinfo").splitlines():
        key, _, value = line.partition(":")
        facts.setdefault(key.strip().lower(), value.strip())
    memory = {
        line.partition(":")[0]: int(found[0]) * units.KIB
        for line in _text(root / "proc/meminfo").splitlines()
        if (found := re.findall(r"\d+", line))
    }
    board = _text(root / "proc/device-tree/model").strip("\0\n ")
    allowed = _allowed_cpus()
    cores = {_text(root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").strip() for cpu in allowed}
    cores.discard("")
    threads = min(len(allowed), _quota(root) or len(allowed))
    total, available = memory.get("MemTotal"), memory.get("MemAvailable")
    limit = _memory_limit(root)
    if limit is not None and total is not None and limit < total:
        total, available = limit, min(available or limit, limit)
    return Computer(
        name=_first_of(facts, "model name", "hardware", "cpu model") or board or platform.machine(),
        system=_system(),
        isa=_ordered((facts.get("flags") or facts.get("features") or "").split()),
        threads=threads,
        cores=min(len(cores) or threads, threads),
        cache_bytes=_linux_cache(root, allowed),
        memory_bytes=total,
        available_bytes=available,
    )


def _first_of(facts: dict[str, str], *keys: str) -> str | None:
    return next((facts[key] for key in keys if facts.get(key)), None)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _allowed_cpus() -> list[int]:
    if sys.platform == "linux":
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _quota(root: Path) -> int | None:
    """CPUs' worth of time that a container may take, rounded up; None where there is no limit."""
    quota, _, period = _text(root / "sys/fs/cgroup/cpu.max").strip().partition(" ")
    if quota.isdigit() and period.isdigit() and int(period):
        return max(math.ceil(int(quota) / int(period)), 1)
    return None


def _memory_limit(root: Path) -> int | None:
    """Memory that a container may take, None where there is no limit. [byte]"""
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        text = _text(root / "sys/fs/cgroup" / name).strip()
        if text.isdigit() and 0 < int(text) < _HUGE:
            return int(text)
    return None


def _linux_cache(root: Path, cpus: Iterable[int]) -> int | None:
    """The caches of the highest level, each once however many processors share it. [byte]"""
    found: dict[tuple[int, str], int] = {}
    for cpu in cpus:
        for index in sorted((root / f"sys/devices/system/cpu/cpu{cpu}/cache").glob("index*")):
            level, size = _text(index / "level").strip(), _CACHE_SIZE.match(_text(index / "size"))
            if level.isdigit() and size and _text(index / "type").strip() != "Instruction":
                shared = _text(index / "shared_cpu_list").strip() or str(cpu)
                found[int(level), shared] = int(size["number"]) * _UNIT_BYTES[size["unit"]]
    last = max((level for level, _ in found), default=0)
    return sum(size for (level, _), size in found.items() if level == last) or None


# --- macOS ----------------------------------------------------------------------------------------------------------


def _mac() -> Computer:
    threads = _sysctl_number("hw.logicalcpu") or os.cpu_count() or 1
    return Computer(
        name=_sysctl_text("machdep.cpu.brand_string") or platform.machine(),
        system=_system(),
        isa=_ordered(flag for name, flag in _MAC_FLAGS.items() if _sysctl_number(name)),
        threads=threads,
        cores=min(_sysctl_number("hw.physicalcpu") or threads, threads),
        cache_bytes=_sysctl_number("hw.l3cachesize") or max(_mac_second_level(), default=None),
        memory_bytes=_sysctl_number("hw.memsize"),
    )


def _mac_second_level() -> Iterator[int]:
    """Apple's cores have no third level; clusters of them share the second. [byte]"""
    for name in ("hw.perflevel0.l2cachesize", "hw.perflevel1.l2cachesize", "hw.l2cachesize"):
        size = _sysctl_number(name)
        if size:
            yield size


def _sysctl(name: str) -> bytes | None:
    with suppress(OSError, AttributeError):
        call = ctypes.CDLL(None).sysctlbyname
        size = ctypes.c_size_t(0)
        if call(name.encode(), None, ctypes.byref(size), None, ctypes.c_size_t(0)) == 0:
            buffer = ctypes.create_string_buffer(size.value)
            if call(name.encode(), buffer, ctypes.byref(size), None, ctypes.c_size_t(0)) == 0:
                return buffer.raw[: size.value]
    return None


def _sysctl_text(name: str) -> str:
    return (_sysctl(name) or b"").rstrip(b"\0").decode("utf-8", "replace")


def _sysctl_number(name: str) -> int | None:
    return int.from_bytes(_sysctl(name) or b"", sys.byteorder) or None


# --- Windows --------------------------------------------------------------------------------------------------------


class _MemoryStatus(ctypes.Structure):
    """MEMORYSTATUSEX of sysinfoapi.h."""

    _fields_ = (
        ("length", ctypes.c_uint32),
        ("load", ctypes.c_uint32),
        *((name, ctypes.c_uint64) for name in ("total", "available", *(f"other{number}" for number in range(5)))),
    )


def _windows() -> Computer:
    threads = os.cpu_count() or 1
    flags, status = [], _MemoryStatus()
    with suppress(AttributeError, OSError):
        kernel = ctypes.CDLL("kernel32")
        flags = [flag for number, flag in _WINDOWS_FLAGS.items() if kernel.IsProcessorFeaturePresent(number)]
        status.length = ctypes.sizeof(status)
        kernel.GlobalMemoryStatusEx(ctypes.byref(status))
    return Computer(
        name=platform.processor() or platform.machine(),
        system=_system(),
        isa=_ordered(flags),
        threads=threads,
        cores=threads,
        memory_bytes=status.total or None,
        available_bytes=status.available or None,
    )
