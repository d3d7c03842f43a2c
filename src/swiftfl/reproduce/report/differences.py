"""Where an experiment differs from the paper, and why: sentences that hold for what was recorded."""

from __future__ import annotations

from typing import Any

from swiftfl.reproduce.printed import printed
from swiftfl.reproduce.report.recorded import RecordedExperiment

_HARDWARE = (
    "Times are simulated. All clients share one host, as in the authors' scripts: a synchronous exchange has "
    "a barrier over everybody and takes as long as all its bytes together. Calibrated are D-SGD's and SWIFT "
    "C_0's rows of the baseline table and, for ResNet-50, the compute of D-SGD's ring; every other number is "
    "a prediction. The paper's own D-SGD row differs by about ten percent between its tables."
)
_FIDELITY = {
    "paper": (
        "Algorithms are as the paper prints them. The authors' code averages before the optimiser's step in "
        "every method, broadcasts after the gradient, and lowers the step size later: --fidelity authors."
    ),
    "authors": (
        "Algorithms are as the authors' code runs them, not as printed: every method averages between the "
        "gradient and the optimiser's step, weight decay acts at the average, SWIFT broadcasts after its "
        "gradient, and the step size falls at the epochs of their code."
    ),
}
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
    "clients": (
        "Rings of 64 and 256 clients are an addition; only their times are predicted, as if they all fitted "
        "into one host.",
        "D-SGD's predicted exchange is proportional to the number of messages. The printed ones of 4 and 8 "
        "clients are shorter, probably because fewer processes compete for the host.",
    ),
    "topologies": (
        "The compute of ResNet-50 is that of D-SGD on the ring; communication follows from the bytes. The "
        "printed exchange of D-SGD on two cliques (57 edges) takes as long as on four (28 edges), which no "
        "model by bytes can give: the cause is unknown, and the authors' scripts have no run with two "
        "cliques. SWIFT C_0's printed communication on four cliques is below its C_1's, which averages half "
        "as often.",
    ),
}


def differences(recorded: RecordedExperiment) -> list[str]:
    """What a reader must know before comparing, the most important first."""
    hardware = recorded.about.get("hardware", "paper")
    costs = f"The costs are those of the profile {hardware}, not the paper's hardware."
    first = _HARDWARE if hardware == "paper" else costs
    fidelity = recorded.about.get("fidelity", "paper")
    ran = [_FIDELITY[fidelity]] if fidelity in _FIDELITY else []
    own = _OWN.get(recorded.name, ())
    return [first, *ran, *own, *_training(recorded), _WAITING, _WEIGHTS, _MOMENTUM]


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
    said.append(
        "Losses and accuracies are those of the average of all models (the consensus model) unless they say "
        "otherwise. The authors plot the mean of the clients' own losses, which stands beside."
    )
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
