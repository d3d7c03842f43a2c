"""Where an experiment differs from the paper, and why: sentences that hold for what was recorded."""

from __future__ import annotations

from typing import Any

from swiftfl.reproduce.printed import printed
from swiftfl.reproduce.report.recorded import RecordedExperiment

_HARDWARE = (
    "Times are simulated. The cost model of the paper's hardware (seconds for a gradient, for sending, for "
    "averaging, and for a message's journey) is calibrated on one row only, D-SGD in the baseline table; "
    "every other number is a prediction. The paper's own D-SGD row differs by about ten percent between "
    "its tables."
)
_WEIGHTS = (
    "SWIFT's averaging weights come from the corrected communication-coefficient selection: the expected "
    "matrix is doubly stochastic for any network. The baselines average with Metropolis weights unless "
    "the configuration says otherwise; the authors' neighbourhood-uniform ones are not doubly stochastic "
    "on irregular networks."
)
_MOMENTUM = (
    "Each client keeps the momentum of its own gradients, for every method; it is not averaged. The "
    "paper's theorem has no momentum, its experiments do."
)
_WAITING = (
    "The authors' code counts waiting for others outside communication. Both conventions are shown: "
    "communication alone beside the paper's, and communication with waiting."
)
_OWN: dict[str, tuple[str, ...]] = {
    "baseline": ("The paper quotes AD-PSGD's number from that method's own paper; here AD-PSGD is run.",),
    "noniid": (
        "The paper gives one row of times for all degrees of non-IIDness, which is shown beside each "
        "of them here. Cyclic classes are an addition.",
    ),
    "slowdown": (
        "A slow client computes more slowly; its messages travel as fast as the others'. Its longer compute "
        "time is part of the mean epoch here; the paper's epoch leaves it out, and only its total has it.",
        "The paper's total is 2.1 to 2.6 times its epoch even without a slowdown: in the authors' code it is "
        "the wall time of an epoch, with loading of batches, recording, copies to and from the GPU and "
        "waiting before the barrier, which its other two columns leave out. So totals are compared as "
        "ratios to those without a slowdown.",
        "Runs end after the same number of client steps, so that a slow client of SWIFT does not train on "
        "alone when all others have finished. The one exception is the case named half of D-SGD's time: it "
        "takes as many steps as fit into half of the time that D-SGD needs, which is more work than D-SGD's, "
        "with the schedule stretched to that length. 16x, the slow link, and p = rates are additions.",
    ),
    "clients": ("Rings of 64 and 256 clients are an addition; only their times are predicted.",),
    "topologies": (
        "Compute grows from the authors' thin ResNet-18 to their thin ResNet-50 with the arithmetic of a "
        "gradient, and sending and averaging with the bytes; nothing is fitted. Small kernels leave a GPU "
        "idle, so the predicted compute is probably too high.",
    ),
}


def differences(recorded: RecordedExperiment) -> list[str]:
    """What a reader must know before comparing, the most important first."""
    hardware = recorded.about.get("hardware", "paper")
    costs = f"The costs are those of the profile {hardware}, not the paper's hardware."
    first = _HARDWARE if hardware == "paper" else costs
    return [first, *_OWN.get(recorded.name, ()), *_training(recorded), _WAITING, _WEIGHTS, _MOMENTUM]


def _training(recorded: RecordedExperiment) -> list[str]:
    """Model, data, epochs and seeds, where they are not the paper's."""
    config = next((run.config for run in recorded.runs if run.config), None)
    hyper = printed()["hyperparameters"].get(recorded.name)
    if config is None or hyper is None:
        return []
    said = []
    model, data = config["model"]["name"], config["data"]["dataset"]
    if model != f"thin_{hyper['model']}":
        thin = f"the authors' thin {hyper['model']}"
        said.append(
            f"Losses are of the model {model} on {data}, not of {thin} on CIFAR-10: how the curves lie to "
            "each other can be compared, the values cannot."
        )
    if not config["data"].get("augment"):
        said.append("Images are not augmented.")
    said.append("Losses and accuracies are those of the average of all models (the consensus model).")
    said += _schedule(config, hyper)
    seeds = recorded.about.get("seeds", [])
    said.append(f"Means and deviations are over {len(seeds)} seed{'s' if len(seeds) != 1 else ''}.")
    return said


def _schedule(config: dict[str, Any], hyper: dict[str, Any]) -> list[str]:
    said = []
    epochs = config["engine"].get("epochs")
    if epochs is not None and epochs != hyper["epochs"]:
        said.append(
            f"Runs take {epochs} epochs instead of {hyper['epochs']}; the schedule is shrunk in proportion, "
            "to whole epochs, and the step size falls less often."
        )
    elif epochs is None:
        steps = config["engine"].get("iterations")
        said.append(f"Runs take {steps:,} client steps; the paper trains for {hyper['epochs']} epochs.")
    initial = config["algorithm"]["step_size"]["initial"]
    if initial != hyper["step_size"]:
        said.append(
            f"The step size starts at {initial:g} instead of {hyper['step_size']:g}, unless the "
            "configuration below shows another."
        )
    return said
