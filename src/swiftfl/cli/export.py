"""`swiftfl export`: the model of a recorded run as a file that other programs read."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from swiftfl.errors import UserError

if TYPE_CHECKING:
    from swiftfl.api.result import Result

_ENDINGS = {"safetensors": ".safetensors", "state_dict": ".pt", "onnx": ".onnx"}


def export(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="The run folder of a finished run.")],
    form: Annotated[
        Literal["safetensors", "state_dict", "onnx"],
        typer.Option("--format", help="safetensors; state_dict (torch.save); onnx (needs swiftfl\\[onnx])."),
    ] = "safetensors",
    client: Annotated[
        int | None, typer.Option(help="The model of this client (default: the consensus model).")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="The file to write (default: RUN/consensus or client-K, with its ending)."),
    ] = None,
) -> None:
    """Write the consensus model of a run, or one client's model, to a file.

    swiftfl export runs/mine

    swiftfl export runs/mine --format onnx --client 3 --out three.onnx
    """
    from swiftfl.api.result import load
    from swiftfl.files import checked_target, write_atomically

    result = load(folder)
    file = out or folder / f"{'consensus' if client is None else f'client-{client}'}{_ENDINGS[form]}"
    checked_target(file)
    if file.exists():
        raise UserError(f"{file} is there already: give another --out, or remove it")
    try:
        data = _onnx(result, client) if form == "onnx" else _tensors(result, client, form)
    except UserError as error:
        raise UserError(
            str(error).replace("model: there is no client", "--client: there is no client")
        ) from None
    write_atomically(file, data)
    print(f"Written: {file}")


def _tensors(result: Result, client: int | None, form: str) -> bytes:
    """The tensors by name; a state_dict holds nothing that `torch.load(..., weights_only=True)` refuses."""
    import torch
    from safetensors.torch import save

    state = {name: tensor.contiguous() for name, tensor in result.state_dict(client).items()}
    if form == "safetensors":
        return save(state, metadata={"format": "pt"})
    stream = io.BytesIO()
    torch.save(state, stream)
    return stream.getvalue()


def _onnx(result: Result, client: int | None) -> bytes:
    """The model as a graph, for batches of any size."""
    import torch

    try:
        import onnxscript  # noqa: F401 (torch's exporter needs it)
    except ImportError:
        raise UserError(
            "--format onnx needs libraries that are not here: pip install 'swiftfl[onnx]'"
        ) from None
    module, example = result.model(client), result.example()
    if example is None:
        raise UserError("--format onnx: the inputs of this model are not one tensor; export its tensors")
    batch = torch.export.Dim("batch")
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it tells of libraries that are not needed
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")  # of libraries about themselves
        try:
            program = torch.onnx.export(
                module, (example,), input_names=["input"], output_names=["output"],
                dynamic_shapes=({0: batch},), dynamo=True, verbose=False,
            )  # fmt: skip
        except Exception as error:  # whatever a model has that the exporter cannot express
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise UserError(f"--format onnx: this model cannot be exported: {reason}") from error
    assert program is not None
    return bytes(program.model_proto.SerializeToString())
