"""Fuzz every parser, by mutation; not part of the tests.

    python tests/fuzz/fuzz.py                                   # each parser 1,000 times
    python tests/fuzz/fuzz.py --runs 1000000                    # a million in all; the quick ones more often
    python tests/fuzz/fuzz.py --parser gguf --runs 50000 --seed 7 --keep FOLDER
    python tests/fuzz/fuzz.py --parser gguf --atheris FOLDER -max_total_time=600     # guided by coverage

The last form needs `pip install atheris`. Everything but a `RooflineError` is a finding, and so is an input that takes
`LONGEST_S`. What is found becomes a test; the input is kept with ``--keep``, and one input is tried again with
``--parser NAME --input FILE``.
"""

from __future__ import annotations

import argparse
import difflib
import math
import random
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

LONGEST_S = 2.0
PIECE = 40


def mutated(seed: bytes, others: Sequence[bytes], tokens: Sequence[bytes], header: int, rng: random.Random) -> bytes:
    """A few changes: other bytes, numbers at their limits, words of the language, pieces cut, doubled or taken from
    elsewhere, lines moved."""
    data = bytearray(seed)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 5))):
        size = min(len(data), header)
        at = rng.randrange(size + 1) if size else 0
        match rng.randrange(10):
            case 0:
                data[at : at + 1] = bytes([rng.randrange(256)])
            case 1:
                width = rng.choice((1, 2, 4, 8))
                number = rng.choice((0, 1, 2**7, 2**15, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1))
                data[at : at + width] = (number % 2 ** (8 * width)).to_bytes(width, "little")
            case 2:
                del data[at : at + rng.randint(1, PIECE)]
            case 3:
                data[at:at] = data[at : at + rng.randint(1, PIECE)]
            case 4 if tokens:
                data[at:at] = rng.choice(tokens)
            case 5 | 6 if tokens:  # a value in place of another: from here to the end of the word
                end = at
                while end < len(data) and (data[end : end + 1].isalnum() or data[end : end + 1] in (b".", b"-", b"_")):
                    end += 1
                data[at:end] = rng.choice(tokens)
            case 7 if others:
                other = rng.choice(others)
                start = rng.randrange(len(other) + 1)
                data[at:at] = other[start : start + rng.randint(1, PIECE)]
            case 8 if (lines := bytes(data).split(b"\n")) and len(lines) > 2:
                one, two = rng.randrange(len(lines)), rng.randrange(len(lines))
                lines[one], lines[two] = lines[two], lines[one]
                if rng.random() < 0.3:
                    del lines[one]
                data = bytearray(b"\n".join(lines))
            case 9 if rng.random() < 0.2:
                data = data[:at]
    return bytes(data)


def tried(read: Callable[[bytes], object], data: bytes) -> BaseException | None:
    """What a run finds: an exception that is none of ours, or an answer that takes too long."""
    from rooflinellm.errors import RooflineError

    started = time.process_time()  # not by the clock: the machine may be busy
    try:
        read(data)
    except RooflineError as error:
        if not str(error) or len(str(error)) > 5000:
            return AssertionError(f"a message of {len(str(error))} characters")
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        return error
    taken = time.process_time() - started
    return TimeoutError(f"took {taken:.1f} s") if taken > LONGEST_S else None


def place(error: BaseException) -> str:
    """Where it was raised, in our own code: what two findings of one kind share."""
    frames = [each for each in traceback.extract_tb(error.__traceback__) if "fuzz.py" not in each.filename]
    own = [each for each in frames if "rooflinellm" in each.filename] or frames
    where = f"{Path(own[-1].filename).name}:{own[-1].lineno}" if own else "slow"
    return f"{type(error).__name__} at {where}"


def campaign(name: str, runs: int, seed: int, keep: Path | None, seconds: float) -> tuple[int, float, dict[str, str]]:
    """Run one parser; return how often, how long, and one message for each kind of finding."""
    from fuzz_targets import TARGETS

    target = TARGETS[name]
    seeds = target.seeds()
    rng = random.Random(f"{name} {seed}")
    found: dict[str, str] = {}
    started = time.perf_counter()
    done = 0
    while done < runs and time.perf_counter() - started < seconds:
        first = rng.choice(seeds)
        data = first if done < len(seeds) else mutated(first, seeds, target.tokens, target.header, rng)
        if done < len(seeds):
            data = seeds[done]
        error = tried(target.read, data)
        done += 1
        if error is not None and (kind := place(error)) not in found:
            found[kind] = f"{error}"[:300]
            print(f"  {name}: {kind}: {found[kind]}", flush=True)
            if keep is not None:
                keep.mkdir(parents=True, exist_ok=True)
                (keep / f"{name}-{len(found)}").write_bytes(data)
    return done, time.perf_counter() - started, found


def _with_atheris(name: str, arguments: list[str]) -> None:
    import atheris

    with atheris.instrument_imports(include=["rooflinellm"]):
        from fuzz_targets import TARGETS

    def once(data: bytes) -> None:
        error = tried(TARGETS[name].read, data)
        if error is not None:
            raise error

    atheris.Setup([sys.argv[0], *arguments], once)
    atheris.Fuzz()


def _without_suggestions() -> None:
    """Look for near names among a few only: it takes most of the time of an unknown name, and parses nothing."""
    near = difflib.get_close_matches
    difflib.get_close_matches = lambda word, names, *rest, **named: near(word, list(names)[:20], *rest, **named)


def main() -> int:
    """Run what the command line asks for; 1 where something was found."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parser", help="one of them; all without it")
    parser.add_argument("--runs", type=int, help="runs in all; 1,000 each without it")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="the most that a parser gets")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="folder for inputs that are findings")
    parser.add_argument("--input", type=Path, help="try this file alone")
    parser.add_argument("--atheris", action="store_true", help="with atheris; all else goes to it")
    options, rest = parser.parse_known_args()
    if options.atheris:
        _with_atheris(options.parser, rest)
        return 0
    if rest:
        parser.error(f"unknown: {' '.join(rest)}")
    from fuzz_targets import TARGETS

    if options.input is not None:
        TARGETS[options.parser].read(options.input.read_bytes())
        return 0
    names = [options.parser] if options.parser else list(TARGETS)
    counts = dict.fromkeys(names, 1000 if options.runs is None else options.runs // len(names))
    _without_suggestions()
    if options.runs is not None and len(names) > 1:  # the quick ones run more often
        speed = {}
        for name in names:
            done, taken, _ = campaign(name, 60, -1, None, 5)
            speed[name] = math.sqrt(done / taken)
        counts = {name: math.ceil(options.runs * speed[name] / sum(speed.values())) for name in names}
    total, findings, started = 0, 0, time.perf_counter()
    for name in names:
        done, taken, found = campaign(name, counts[name], options.seed, options.keep, options.seconds)
        total, findings = total + done, findings + len(found)
        print(f"{name:12} {done:9,} runs {taken:8.1f} s  {len(found)} kinds of finding", flush=True)
    print(f"{'all':12} {total:9,} runs {time.perf_counter() - started:8.1f} s  {findings} kinds of finding")
    return 1 if findings else 0


if __name__ == "__main__":
    raise SystemExit(main())
