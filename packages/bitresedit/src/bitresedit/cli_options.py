"""Options that several commands share, and what they say turned into models and settings."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import typer

from bitresedit.config import EditConfig
from papers_shared.cli import parse_seeds
from papers_shared.errors import InputError

BackboneName = Literal["scene", "infinity"]
Set = Annotated[
    list[str] | None, typer.Option("--set", help="A setting, for example --set eta=3 --set lock=auto; repeatable.")
]
Force = Annotated[bool, typer.Option("--force", help="Replace files that are there.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with a run that was stopped.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Seed = Annotated[int | None, typer.Option(min=0, max=2**63 - 1, help="Seed of the sampler.  [default: 42]")]
Seeds = Annotated[str | None, typer.Option(help="Several: a number of seeds, a list 0,5 or a range 1..4.")]
Batch = Annotated[int | None, typer.Option(min=1, help="Edits at once.  [default: 8; infinity: 1]")]
Picture = Annotated[Path, typer.Argument(help="A picture.")]


@dataclass(frozen=True)
class ModelChoice:
    """The model that a command line names; :func:`with_model` makes the fields options."""

    backbone: Annotated[
        BackboneName, typer.Option("--backbone", help="scene: the bundled small model; infinity: Infinity-2B or 8B.")
    ] = "scene"
    ckpt: Annotated[
        Path | None, typer.Option(help="infinity: folder with transformer, VAE and T5; scene: a file that train wrote.")
    ] = None
    pn: Annotated[
        str | None,
        typer.Option("--pn", help="infinity: pixel budget 0.06M, 0.25M (512x512), 0.60M or 1M.  [default: 0.25M]"),
    ] = None
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1, ...")] = "cpu"
    dtype: Annotated[Literal["float32", "bfloat16"], typer.Option(help="Precision of the transformer.")] = "float32"

    @property
    def name(self) -> str:
        """What a record calls the model."""
        return self.backbone if self.ckpt is None else f"{self.backbone} {self.ckpt.name}"

    def at_once(self, asked: int | None) -> int:
        """Edits that go through the model together: one of Infinity's takes two gigabytes beside the weights."""
        return asked or (1 if self.backbone == "infinity" else 8)

    def load(self) -> Any:
        """Load the model.

        Raises
        ------
        InputError
            If the device is not there, or no checkpoint is named where one is needed.
        CheckpointError
            If a checkpoint cannot be used.
        """
        import torch

        try:
            device, dtype = torch.device(self.device), getattr(torch, self.dtype)
            torch.empty(0, device=device)
        except (RuntimeError, AssertionError) as error:
            raise InputError(f"--device {self.device}: {str(error).splitlines()[0]}") from None
        if self.backbone == "infinity":
            from bitresedit.backbones.infinity import Infinity

            if self.ckpt is None:
                raise InputError("--backbone infinity needs --ckpt", "give the folder with transformer, VAE and T5")
            return Infinity.from_folder(self.ckpt, self.pn or "0.25M", device, dtype)
        if self.pn is not None:
            raise InputError(f"--pn {self.pn}: the scene model has one size", "--pn goes with --backbone infinity")
        from bitresedit.backbones.scene_var import SceneVAR

        if self.ckpt is None:
            return SceneVAR.load_default(device, dtype)
        return SceneVAR.load(self.ckpt, device, dtype)


def with_model(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of :class:`ModelChoice` in place of its parameter ``model``."""
    signature = inspect.signature(command, eval_str=True)
    kinds = get_type_hints(ModelChoice, include_extras=True)
    options = [
        inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default, annotation=kinds[f.name])
        for f in fields(ModelChoice)
    ]
    parameters: list[inspect.Parameter] = []
    for parameter in signature.parameters.values():
        keyword = parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        parameters += options if parameter.name == "model" else [keyword]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        model = ModelChoice(**{option.name: given.pop(option.name) for option in options})
        command(model=model, **given)

    run.__signature__ = signature.replace(parameters=parameters)  # ty: ignore[missing-attribute]
    return run


def chosen_seeds(seed: int | None, seeds: str | None) -> tuple[int, ...]:
    """Give the seeds that ``--seed`` or ``--seeds`` names, by default 42.

    Raises
    ------
    InputError
        If both are given, or ``--seeds`` does not read.
    """
    if seeds is None:
        return (42 if seed is None else seed,)
    if seed is not None:
        raise InputError(f"both --seed {seed} and --seeds {seeds} are given", "give one of them")
    return parse_seeds(seeds)


def parse_settings(settings: list[str] | None) -> dict[str, str]:
    """Read ``--set name=value`` and check it, before any model is loaded.

    Raises
    ------
    InputError
        If one is not of that form.
    BitResEditError
        If there is no such setting, or its value is out of range.
    """
    pairs = [text.partition("=") for text in settings or []]
    for name, equals, value in pairs:
        if not (name and equals and value):
            raise InputError(f"--set {name}{equals}{value}: not a setting", "write name=value, for example --set eta=3")
    values = {name.strip(): value.strip() for name, _, value in pairs}
    EditConfig().with_text(values)
    return values


def settings_for(backbone: Any, values: dict[str, str]) -> EditConfig:
    """Give the backbone's settings with those of ``--set``."""
    return EditConfig(**backbone.default_config).with_text(values)
