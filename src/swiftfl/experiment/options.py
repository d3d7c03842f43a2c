"""Which options a configuration may hold, by what it names, and which of them survive a change of names."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Any

from swiftfl.algorithms import ALGORITHMS
from swiftfl.data.registry import DATASETS, dataset_options, has_folder
from swiftfl.mixing import MIXINGS
from swiftfl.registry import Option, Registry, options_of, was_given
from swiftfl.rules import RULES
from swiftfl.schedule import SCHEDULES
from swiftfl.settings import SettingError, no_such_setting
from swiftfl.workload.models import MODELS, model_options

Tree = dict[str, Any]
COMMON = ("name", "weights", "rule", "mixing", "step_size", "clip", "moments")
"""What every algorithm's section has."""
OF_STEP_SIZES = ("initial", "warmup", "corrected", "schedule")
"""What every step size's section has."""
_NONE = Option("none", None, None)


def named(tree: Any, key: str, default: str) -> tuple[str | None, Mapping[str, Any]]:
    """The name and the options in a section, or None where pydantic is to say that they are none."""
    if not isinstance(tree, Mapping):
        return None, {}
    name, options = tree.get(key, default), tree.get("options", {})
    return (name, options) if isinstance(name, str) and isinstance(options, Mapping) else (None, {})


# --- options of an algorithm and its rule, which stand beside each other ---------------------------


def algorithm_options(name: str, rule: str, mixing: str) -> dict[str, Option]:
    parts = {
        name: options_of(ALGORITHMS[name].make),
        f"rule {rule}": options_of(RULES[rule]),
        f"mixing {mixing}": options_of(MIXINGS[mixing]),
    }
    owners = dict.fromkeys(COMMON, "every algorithm")
    for owner, options in parts.items():
        for key in options:
            if key in owners:
                raise SettingError(
                    f"algorithm.{key}", f"is an option of {owner} and of {owners[key]}: rename one"
                )
            owners[key] = owner
    return {key: option for options in parts.values() for key, option in options.items()}


def options_owner(name: str, rule: str, mixing: str) -> str:
    with_rule = name if options_of(ALGORITHMS[name].make) else f"{name} with rule {rule}"
    return with_rule if mixing == "plain" else f"{with_rule} and mixing {mixing}"


def users_of(option: str) -> list[str]:
    """The algorithms, update rules and mixing rules that have this option."""
    algorithms = [name for name, entry in ALGORITHMS.items() if option in options_of(entry.make)]
    rules = [f"rule {name}" for name, make in RULES.items() if option in options_of(make)]
    mixings = [f"mixing {name}" for name, make in MIXINGS.items() if option in options_of(make)]
    return algorithms + rules + mixings


def refuse_of_other_rules(given: Iterable[str], known: Container[str], rule: str) -> None:
    """Options that only other update rules have: it is the rule that does not use them, not the algorithm."""
    for key in given:
        users = users_of(key) if key not in known else []
        if users and all(user.startswith("rule ") for user in users):
            raise SettingError(f"algorithm.{key}", f"is for {', '.join(users)}, not rule {rule}")


def schedules_with(option: str) -> list[str]:
    return [f"schedule {name}" for name, make in SCHEDULES.items() if option in options_of(make)]


def models_with(option: str) -> list[str]:
    return [name for name in MODELS if option in model_options(name)]


# --- changes --------------------------------------------------------------------------------------


def replace(tree: Tree, key: str, value: Any) -> None:
    *path, last = key.split(".")
    section: Any = tree
    for depth, part in enumerate(path):
        if part not in section:
            known, owner = (list(section), ".".join(path[:depth]) or "a configuration")
            raise no_such_setting(".".join(path[: depth + 1]), known, owner)
        section = section[part]
        if not isinstance(section, dict):
            raise SettingError(key, f": {'.'.join(path[: depth + 1])} has no settings inside")
    section[last] = value


def leave_options_behind(tree: Tree, changes: Mapping[str, Any]) -> None:
    """Of what is replaced by another: options at their defaults, and those that the other does not have.

    Names that do not exist are left to validation.
    """
    algorithm = tree["algorithm"]
    for key, registry in _MAKERS.items():
        old, new = algorithm[key], changes.get(f"algorithm.{key}", algorithm[key])
        if new != old and new in registry:
            _forget(algorithm, options_of(_maker(registry[old])), options_of(_maker(registry[new])))
            if key == "name" and was_given(algorithm["rule"]) and not was_given(new):
                algorithm["rule"] = "sgd"  # the rule that was given belonged to the algorithm
            if key == "name" and algorithm["weights"] == ALGORITHMS[old].weights:
                algorithm["weights"] = None
            if key == "name" and not ALGORITHMS[new].corrects_steps:
                algorithm["step_size"]["corrected"] = False
    step_size = algorithm["step_size"]
    new = changes.get("algorithm.step_size.schedule", step_size["schedule"])
    if new != step_size["schedule"] and new in SCHEDULES:
        _forget(step_size, options_of(SCHEDULES[step_size["schedule"]]), options_of(SCHEDULES[new]))
    engine = tree["engine"]
    if changes.get("engine.codec", engine["codec"]) != engine["codec"]:
        engine["codec_options"] = {}
    data, model, topology = tree["data"], tree["model"], tree["topology"]
    new = changes.get("data.dataset", data["dataset"])
    if new != data["dataset"] and new in DATASETS:
        _forget(data["options"], dataset_options(data["dataset"]), dataset_options(new))
        data["folder"] = data["folder"] if has_folder(new) else None
    new = changes.get("model.name", model["name"])
    if new != model["name"] and new in MODELS:
        _forget(model["options"], model_options(model["name"]), model_options(new))
        _forget(model, {"norm": model_options(model["name"]).get("norm", _NONE)}, model_options(new))
    if "topology.name" in changes and changes["topology.name"] != topology["name"]:
        topology.update(options={}, clusters=None, edges=None)


_MAKERS: Mapping[str, Registry[Any]] = {"name": ALGORITHMS, "rule": RULES, "mixing": MIXINGS}
"""What has its options in the section of the algorithm, by the setting that names it."""


def _maker(entry: Any) -> Any:
    """The function of a registry's entry that has its options."""
    return getattr(entry, "make", entry)


def _forget(values: Tree, old: Mapping[str, Option], new: Mapping[str, Option]) -> None:
    for key, option in old.items():
        if key in values and (key not in new or values[key] == option.default):
            del values[key]
