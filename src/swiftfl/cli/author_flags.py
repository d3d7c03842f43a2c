"""The flags of the authors' programs (Train.py, TrainSlowdown.py), translated into those of `swiftfl run`.

Only what was typed is translated: a flag that is left out has the default of the recipe, not theirs. Flags
that their code never reads, and values that ask for nothing, are left out. What would change the run and is
not offered is refused, with the reason. docs/paper-map.md has the table.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from swiftfl.errors import UserError
from swiftfl.registry import suggestion
from swiftfl.transports.ranks import rank_here

Theirs = Mapping[str, str]
"""What was typed, by flag; flags without a value have an empty one."""

_SHORT = {"-e": "--epoch", "-n": "--name", "-p": "--p"}
_ALGORITHMS = {"swift": "swift", "d-sgd": "dsgd", "pd-sgd": "pasgd", "ld-sgd": "ldsgd"}
_GRAPHS = ("ring", "fully-connected", "clique-ring", "erdos-renyi")
_DEPTHS = ("18", "34", "50", "101", "152")
_DEFAULT_DEGREE = "0.7"


def _algorithm(theirs: Theirs) -> str:
    return theirs.get("--comm_style", "swift")


def _flag(name: str) -> Callable[[str, Theirs], list[str]]:
    return lambda value, theirs: [name, value]


def _nothing(value: str, theirs: Theirs) -> list[str]:
    return []


def _chosen(flag: str, value: str, known: Mapping[str, str] | tuple[str, ...]) -> str:
    if value not in known:
        raise UserError(f"{flag} {value}: {suggestion(value, known)}")
    return known[value] if isinstance(known, Mapping) else value


def _comm_style(value: str, theirs: Theirs) -> list[str]:
    return ["--algorithm", _chosen("--comm_style", value, _ALGORITHMS)]


def _graph(value: str, theirs: Theirs) -> list[str]:
    name = _chosen("--graph", value, _GRAPHS)
    if name == "erdos-renyi":
        clients = theirs.get("--clients", "")
        if not clients.isdecimal() or not int(clients):
            raise UserError("--graph erdos-renyi has edges with probability 3/n: add --clients n")
        return ["--topology", f"erdos_renyi:probability={min(1.0, 3 / int(clients)):.6g}"]
    here = {"ring": "ring", "fully-connected": "complete", "clique-ring": "ring_of_cliques"}
    return ["--topology", here[name]]


def _num_clusters(value: str, theirs: Theirs) -> list[str]:
    return ["--clusters", value] if theirs.get("--graph") == "clique-ring" else []


def _degree(value: str, theirs: Theirs) -> list[str]:
    if theirs.get("--noniid", "1") == "0" or _number("--degree_noniid", value) == 0:
        return ["--partition", "iid"]
    return ["--partition", f"label_skew:{value}"]


def _noniid(value: str, theirs: Theirs) -> list[str]:
    return [] if "--degree_noniid" in theirs else _degree(_DEFAULT_DEGREE, theirs)


def _weight_type(value: str, theirs: Theirs) -> list[str]:
    if _algorithm(theirs) == "swift":
        return ["--weights", "ccs"]  # whatever was asked for
    known = {"swift": "ccs", "uniform": "uniform", "uniform-symmetric": "one_over_n"}
    return ["--weights", _chosen("--weight_type", value, known)]


def _sgd_steps(value: str, theirs: Theirs) -> list[str]:
    if _number("--sgd_steps", value) < 1:
        raise UserError(f"--sgd_steps must be at least 1, not {value}")
    return ["--communication-set", str(int(value) - 1)] if _algorithm(theirs) == "swift" else []


def _i1(value: str, theirs: Theirs) -> list[str]:
    return ["--i1", value] if _algorithm(theirs) in ("pd-sgd", "ld-sgd") else []


def _i2(value: str, theirs: Theirs) -> list[str]:
    return ["--i2", value] if _algorithm(theirs) == "ld-sgd" else []


def _res_size(value: str, theirs: Theirs) -> list[str]:
    return ["--model", f"thin_resnet{_chosen('--resSize', value, _DEPTHS)}"]


def _model(value: str, theirs: Theirs) -> list[str]:
    if value not in ("res", "VGG", "wrn"):
        return ["--model", value]
    if value != "res":
        raise UserError(
            f"--model {value}: the authors' code never reads it, and has ResNets only: --model res"
        )
    return [] if "--resSize" in theirs else ["--model", "thin_resnet50"]


def _custom_lr(value: str, theirs: Theirs) -> list[str]:
    """Their two schedules, with their epochs of decay."""
    if value == "0":
        start = 100 if theirs.get("--noniid", "1") == "0" else 200
        options: dict[str, object] = {"start": start, "period": 10, "rate": 0.5}
    else:
        options = {"at": "[81,122]", "rate": 0.1}
    changes = {**options, "epoch_of_decay": "authors"}
    each = [("--set", f"algorithm.step_size.{option}={value}") for option, value in changes.items()]
    return ["--schedule", "step", *(word for pair in each for word in pair)]


def _slowdown(value: str, theirs: Theirs) -> list[str]:
    if ":" in value:
        return ["--slowdown", value]
    return [] if _number("--slowdown", value) == 1 else ["--slowdown", f"0:{value}"]


def _warmup(value: str, theirs: Theirs) -> list[str]:
    if value:
        return ["--warmup", value]
    raise UserError("--warmup needs a number of epochs here (theirs is 5, and their code stops at it)")


def _memory_efficient(value: str, theirs: Theirs) -> list[str]:
    if _number("--memory_efficient", value) == 0:
        return []
    raise UserError(
        f"--memory_efficient {value} is not offered: line 11 of Algorithm 1 stores models, and without them "
        "the expected matrix is not doubly stochastic; a mailbox holds one model per neighbour as it is"
    )


def _personalize(value: str, theirs: Theirs) -> list[str]:
    if _number("--personalize", value) == 0:
        return []
    raise UserError(f"--personalize {value} is not offered: the authors' code has it commented out")


def _out(value: str, theirs: Theirs) -> list[str]:
    folder = theirs.get("--outputFolder", "Output")
    return ["--out", str(Path(folder, theirs.get("--name", "default")))]


def _out_of_folder(value: str, theirs: Theirs) -> list[str]:
    return [] if "--name" in theirs else _out(value, theirs)


FLAGS: dict[str, Callable[[str, Theirs], list[str]]] = {
    "--comm_style": _comm_style,
    "--graph": _graph,
    "--num_clusters": _num_clusters,
    "--noniid": _noniid,
    "--degree_noniid": _degree,
    "--weight_type": _weight_type,
    "--sgd_steps": _sgd_steps,
    "--resSize": _res_size,
    "--epoch": _flag("--epochs"),
    "--bs": _flag("--batch-size"),
    "--customLR": _custom_lr,
    "--nesterov": lambda value, theirs: ["--set", "algorithm.nesterov=true"],
    "--datasetRoot": _flag("--data"),
    "--randomSeed": _flag("--seed"),
    "--outputFolder": _out_of_folder,
    "--name": _out,
    "--memory_efficient": _memory_efficient,
    "--personalize": _personalize,
    "--wb": _nothing,  # has an effect with --memory_efficient only
    "--description": _nothing,
    "--max_sgd": _nothing,  # read by --personalize only
    "--unordered_epochs": _nothing,
    "--downloadCifar": _nothing,  # files that are missing are fetched
    "--savePath": _nothing,
    "--p": _nothing,
}
"""Flags that only the authors have: the words of this program for a value."""
SHARED: dict[str, Callable[[str, Theirs], list[str]]] = {
    "--i1": _i1,
    "--i2": _i2,
    "--model": _model,
    "--slowdown": _slowdown,
    "--warmup": _warmup,
}
"""Flags that both have, with a meaning of theirs beside one of those above."""

_TOGETHER = ("--noniid", "--outputFolder", "--model")
"""Which may be said by another one: --degree_noniid, --name, --resSize."""
_VALUE_NEEDED = {*FLAGS, *SHARED} - {"--nesterov", "--p", "--warmup"}


def translate(arguments: list[str]) -> list[str]:
    """The arguments of `swiftfl run`, the authors' flags in the spelling of this program, which is shown."""
    words = [_SHORT.get(word, word) for word in arguments]
    if not any(word.partition("=")[0] in FLAGS for word in words):
        return arguments
    kept, typed = _sorted_out(words)
    theirs = {**dict(typed), **_clients(kept)}
    new, left_out = list(kept), []
    for flag, value in typed:
        found = {**FLAGS, **SHARED}[flag](value, theirs)
        new += found
        left_out += [] if found or flag in _TOGETHER else [shlex.join(filter(None, (flag, value)))]
    if not rank_here():
        without = f" (without effect, left out: {', '.join(left_out)})" if left_out else ""
        shown = shlex.join(["swiftfl", *new])
        print(f"swiftfl: the authors' flags, as they are called here: {shown}{without}", file=sys.stderr)
    return new


def _sorted_out(words: list[str]) -> tuple[list[str], list[tuple[str, str]]]:
    """The words that stay as they are, and the flags to translate, each with its value."""
    kept: list[str] = []
    typed: list[tuple[str, str]] = []
    left = list(words)
    while left:
        flag, equals, value = left.pop(0).partition("=")
        if flag not in FLAGS and flag not in SHARED:
            kept.append(flag + equals + value)
            continue
        if not equals and flag in _VALUE_NEEDED and (not left or _is_flag(left[0])):
            raise UserError(f"{flag} needs a value")
        if not equals and (flag in _VALUE_NEEDED or (flag == "--warmup" and left and not _is_flag(left[0]))):
            value = left.pop(0)
        typed.append((flag, value))
    return kept, typed


def _is_flag(word: str) -> bool:
    return word.startswith("-") and not word[1:2].isdecimal()


def _clients(kept: list[str]) -> dict[str, str]:
    words = " ".join(kept).replace("=", " ").split()
    return {"--clients": words[words.index("--clients") + 1]} if "--clients" in words[:-1] else {}


def _number(flag: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise UserError(f"{flag} {value}: it must be a number") from None
