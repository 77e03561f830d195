"""Stages of a few lines, for workers in tests: some do what they should."""

import ctypes
import json
import os
import resource
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagemill.engine.stage import Input, Output
from pagemill.errors import AppError, BadInput, Defect


@dataclass
class Each:
    """A stage that answers every item by one function."""

    answer: Callable[[Input], Output]
    fit: bool = True

    def run(self, items: Sequence[Input]) -> Sequence[Output | AppError]:
        return [self._one(item) for item in items]

    def _one(self, item: Input) -> Output | AppError:
        try:
            return self.answer(item)
        except BadInput as error:
            return error

    def check(self) -> None:
        if not self.fit:
            raise Defect("2 and 2 make 5")


def echo(_config: dict[str, Any]) -> Each:
    """Answer with the payload, and with a copy of each buffer."""
    return Each(lambda item: Output(payload=item.payload, buffers=tuple(map(bytes, item.buffers))))


def pid(_config: dict[str, Any]) -> Each:
    """Answer with the worker's process id and generation of configuration."""
    return Each(lambda _item: Output(payload=f"{os.getpid()} {_config}".encode()))


def together(_config: dict[str, Any]) -> Any:
    """Answer with the number of items in the batch."""

    class Count(Each):
        def run(self, items: Sequence[Input]) -> Sequence[Output | AppError]:
            return [Output(payload=str(len(items)).encode()) for _ in items]

    return Count(lambda item: Output(payload=b""))


def trouble(config: dict[str, Any]) -> Each:
    """Do what the payload says; each payload names one way to fail."""
    return Each(lambda item: _trouble(item, config))


def _trouble(item: Input, config: dict[str, Any]) -> Output:
    word, _, rest = item.payload.decode().partition(" ")
    match word:
        case "ok":
            return Output(payload=item.payload)
        case "segfault":
            ctypes.string_at(0)
        case "abort":
            os.abort()
        case "exit":
            os._exit(3)
        case "hang":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "bad":
            raise BadInput("it is bad")
        case "defect":
            raise RuntimeError("secret detail")
        case "print":
            print(rest, file=sys.stderr, flush=True)
        case "eat":
            hoard.append(bytearray(os.urandom(1)) * (int(rest) * 2**20))
        case "wait":
            with open(rest, "rb") as gate:  # a FIFO: blocks until the test writes
                gate.read()
        case "once":  # crash the first time only, told by a file
            if not os.path.exists(rest):
                with open(rest, "w"):
                    os.abort()
        case _:
            pass
    return Output(payload=item.payload)


hoard: list[bytearray] = []


def unfit(_config: dict[str, Any]) -> Each:
    """Fail the known-answer check."""
    return Each(lambda item: Output(payload=item.payload), fit=False)


def unloadable(_config: dict[str, Any]) -> Each:
    """Fail to load."""
    raise BadInput("the model is broken")


def dies_loading(_config: dict[str, Any]) -> Each:
    """Crash while loading."""
    os.abort()


def liar(config: dict[str, Any]) -> Each:
    """Make the worker answer out of contract: replaces its reply function."""
    worker: Any = sys.modules["__main__"]  # the worker's own module, as it runs
    kind = config["kind"]
    honest = worker._reply

    def lie(each: Any, out: list[int], held: Any) -> Any:
        import msgspec

        reply = honest(each, out, held)
        match kind:
            case "nonce":
                return msgspec.structs.replace(reply, nonce=reply.nonce + 1)
            case "digest":
                return msgspec.structs.replace(reply, digest=b"x" * 16)
            case "buffers":
                return msgspec.structs.replace(reply, buffers=(7,))
            case _:
                os.write(int(sys.argv[1]), b"\xff" * 64)
                os.kill(os.getpid(), signal.SIGSTOP)
                return reply

    worker._reply = lie
    return Each(lambda item: Output(payload=item.payload))


def surroundings(_config: dict[str, Any]) -> Each:
    """Answer with what the worker's process was when the stage was loaded."""
    lines = Path("/proc/self/status").read_text().splitlines()
    status = dict(line.split(":", 1) for line in lines if ":" in line)
    facts = {
        "environment": dict(os.environ),
        "cores": sorted(os.sched_getaffinity(0)),
        "core_bytes": resource.getrlimit(resource.RLIMIT_CORE)[1],
        "no_new_privileges": status["NoNewPrivs"].strip() == "1",
        "ignores_interrupt": signal.getsignal(signal.SIGINT) is signal.SIG_IGN,
        "leads_session": os.getsid(0) == os.getpid(),
    }
    return Each(lambda _item: Output(payload=json.dumps(facts).encode()))


def sloppy(_config: dict[str, Any]) -> Any:
    """Answer out of the contract of stages, in the way that the payload says."""

    class Sloppy(Each):
        def run(self, items: Sequence[Input]) -> Any:
            return [] if items[0].payload == b"too few" else super().run(items)

    return Sloppy(_slop)


def _slop(item: Input) -> Any:
    match item.payload:
        case b"no output":
            return None
        case b"text":
            return Output(payload="text")  # type: ignore[arg-type] # the point of it
        case b"strided":
            return Output(payload=b"", buffers=(memoryview(b"0123456789")[::2],))
        case b"many buffers":
            return Output(payload=b"", buffers=(b"",) * 300)
        case b"huge":
            return Output(payload=bytes(33 * 2**20))
        case _:
            pass
    return Output(payload=item.payload)


def loads_once(config: dict[str, Any]) -> Each:
    """Load for the first who asks; refuse all others."""
    try:
        Path(config["flag"]).touch(exist_ok=False)
    except FileExistsError:
        raise Defect("loaded before") from None
    return Each(lambda _item: Output(payload=b"new"))


def stuck_loading(config: dict[str, Any]) -> Each:
    """Never finish loading."""
    Path(config["flag"]).touch()
    signal.pause()
    raise AssertionError
