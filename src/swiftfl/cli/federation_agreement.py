"""From the options of `swiftfl federation` to what all of its nodes agree on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from swiftfl.errors import UserError

if TYPE_CHECKING:
    from swiftfl.federation.manifest import Agreement


def agreement(
    experiment: str | None,
    model: str | None,
    dataset: str | None,
    communication_set: int,
    codec: str,
    mixing: str,
    *,
    nodes_run_it: bool = False,
) -> Agreement:
    """What the options say, checked; whether nodes can run the experiment, too, if it is theirs."""
    from swiftfl.federation.manifest import Agreement, checked
    from swiftfl.mixing import mixing_named
    from swiftfl.transports.registry import codec_named

    codec_named(codec)
    mixing_named(mixing)
    said: dict[str, object] = {
        "communication_set": communication_set,
        "codec": codec,
        "mixing": mixing,
        **_model(experiment, model, dataset, nodes_run_it),
    }
    return checked(Agreement, said, "the agreement")


def _model(
    experiment: str | None, model: str | None, dataset: str | None, nodes_run_it: bool
) -> dict[str, object]:
    """The model's name, layout, size and type, if something says which model it is."""
    if experiment is not None and (model is not None or dataset is not None):
        raise UserError("--experiment says which model and data: no --model, no --dataset")
    if dataset is not None and model is None:
        raise UserError("--dataset says what --model is made for: give --model, too")
    if experiment is None and model is None:
        return {}
    if experiment is None and dataset is None:
        return {"model": model}
    from swiftfl.experiment.build import build

    if experiment is not None:
        from swiftfl.api.own_experiment import configuration_of, objects_of
        from swiftfl.experiment.source import reference

        said = reference(experiment)
        if said is None:
            raise UserError(f"--experiment {experiment} must be a reference such as mine.py:experiment")
        config = configuration_of(said)
        made, name = build(config, objects_of(config)), said.short
        if nodes_run_it:
            from swiftfl.federation.wait_free import wait_free

            wait_free(made.setup.algorithm)
    else:
        from swiftfl.experiment.recipes import recipe

        config = recipe("digits").with_changes({"data.dataset": dataset, "model.name": model})
        made, name = build(config), str(model)
    recorded = made.workload.recorded()
    return {
        "model": name,
        "layout": recorded.layout_hash,
        "shapes": recorded.shapes_hash,
        "size": recorded.size,
        "dtype": recorded.dtype,
    }
