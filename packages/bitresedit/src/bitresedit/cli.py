"""The command line: parse, call the library, print."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from bitresedit.cli_options import (
    Batch,
    Force,
    Json,
    ModelChoice,
    Picture,
    Resume,
    Seed,
    Seeds,
    Set,
    chosen_seeds,
    parse_settings,
    settings_for,
    with_model,
)
from papers_shared.artifacts import refuse_existing, write_json, write_npz
from papers_shared.cli import emit_json, paper_app, parse_seeds, table, track, verb
from papers_shared.errors import InputError
from papers_shared.images import open_image, save_image

app = paper_app("bitresedit", help="Edit a photo by text inside a mask, without training or inversion.")
edit_script = verb(app, "edit")

Source = Annotated[str | None, typer.Option(help="What the picture shows, in words.")]
Target = Annotated[str | None, typer.Option(help="What it should show.")]

_UNFAMILIAR_DB = 30.0


@app.command()
@with_model
def edit(
    image: Annotated[
        Path | None, typer.Argument(help="A picture, or a folder of pictures. Without it: a bundled sample.")
    ] = None,
    source: Source = None,
    target: Target = None,
    mask: Annotated[
        str | None,
        typer.Option(help="auto, a picture (white = edit), or a box x0,y0,x1,y1.  [default: auto; a sample's own]"),
    ] = None,
    sample: Annotated[
        str | None,
        typer.Option(help="Which bundled sample, when no picture is given; see `samples`.  [default: default]"),
    ] = None,
    model: ModelChoice = ModelChoice(),
    method: Annotated[str, typer.Option(help="bitresedit, or a peer or ablation: aredit, inpaint, ...")] = "bitresedit",
    seed: Seed = None,
    seeds: Seeds = None,
    settings: Set = None,
    composite: Annotated[
        Literal["off", "pixel"], typer.Option(help="pixel: lay the source's own pixels back where the gate is closed.")
    ] = "off",
    out: Annotated[
        Path | None, typer.Option(help="Edited picture; a folder for several.  [default: edited.png or edits]")
    ] = None,
    panel: Annotated[Path | None, typer.Option(help="Panel picture.  [default: panel.png, or beside --out]")] = None,
    batch: Batch = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a folder of edits that was stopped.")] = False,
    force: Force = False,
    json_: Json = False,
) -> None:
    """Edit a picture by text inside a mask: before and after in words, and where."""
    from bitresedit.baselines import check_methods
    from bitresedit.edit_files import edit_files, plan_edits

    chosen, values = chosen_seeds(seed, seeds), parse_settings(settings)
    if composite != "off":
        values["composite"] = composite
    check_methods([method])
    if image is not None and sample is not None:
        raise InputError(f"both a picture, {image}, and --sample {sample} are given", "give one of them")
    plan = plan_edits(image, source, target, mask, sample or "default", chosen, out, panel, force=force)
    loaded = model.load()
    config = settings_for(loaded, values)
    at_once = model.at_once(batch)
    record = edit_files(loaded, config, method, plan, batch=at_once, force=force, resume=resume, track=track)
    if model.backbone == "scene":
        _warn_of_unfamiliar(record["edits"])
    if json_:
        emit_json(record)
    elif plan.folder is None:
        _print_edit(record["edits"][0], record)
    else:
        columns = ("image", "seed", "background_psnr", "kept_codes_differ_by", "seconds", "edited")
        table([{name: entry[name] for name in columns} for entry in record["edits"]])
        print(f"\nwrote {len(record['edits'])} edits and their panels to {plan.folder}; record: {plan.record}")
    if record["failed"]:
        reasons = "; ".join(entry["reason"] for entry in record["failed"])
        raise InputError(
            f"{len(record['failed'])} of the pictures could not be edited: {reasons}",
            f"the others are in {plan.folder}; put these right and go on with --resume",
        )


def _warn_of_unfamiliar(entries: list[dict[str, Any]]) -> None:
    import warnings

    quality = {entry["image"]: entry["reconstruction_psnr"] for entry in entries}
    poor = {name: value for name, value in quality.items() if value is not None and value < _UNFAMILIAR_DB}
    if not poor:
        return
    if len(quality) == 1:
        found = "{}: the small scene model reproduces this picture at only {:.1f} dB PSNR".format(
            *next(iter(poor.items()))
        )
    else:
        worst, first = min(poor, key=poor.__getitem__), ", ".join(list(poor)[:3]) + (", ..." if len(poor) > 3 else "")
        found = (
            f"{len(poor)} of {len(quality)} pictures ({first}): the small scene model reproduces them at less than "
            f"{_UNFAMILIAR_DB:.0f} dB PSNR, {worst} at {poor[worst]:.1f}"
        )
    warnings.warn(
        f"{found} (its own scenes: over 32); it draws simple rendered scenes. "
        "For photos use --backbone infinity --ckpt FOLDER",
        stacklevel=1,
    )


def _print_edit(entry: dict[str, Any], record: dict[str, Any]) -> None:
    rows = [
        {
            "scale": row["scale"],
            "grid": "x".join(map(str, row["grid"])),
            "eta": row["eta"],
            "flipped inside": f"{row['flipped_inside']:.0%}",
            "outside": f"{row['flipped_outside']:.0%}",
            "mean KL": row["kl"],
            "KL-limited": f"{row['limited']:.0%}",
            "ms": round(1000 * row["seconds"]),
        }
        for row in entry["trace"]
    ]
    table(rows)
    kept = f"codes outside the gate ({entry['kept_share']:.0%} of the grid) identical"
    if entry["kept_share"] == 0:
        kept = "the gate is open everywhere, no code is kept"
    elif entry["kept_codes_differ_by"] > 0:
        kept = f"codes outside the gate differ by up to {entry['kept_codes_differ_by']:.3g}"
    print(f"\n{record['method']}, seed {entry['seed']}: '{entry['source']}' -> '{entry['target']}'")
    print(f"mask {entry['mask_share']:.0%} of the picture; {kept}; {entry['seconds']:.2f} s")
    background = "none, the mask is the whole picture" if entry["mask_share"] == 1 else _decibels(entry, "background")
    print(f"background PSNR {background}; of the codes alone {_decibels(entry, 'reconstruction')}")
    if "truth_psnr" in entry:
        print(f"against the ground truth inside the mask: {entry['truth_psnr']:.1f} dB")
    if "target_probability" in entry:
        print(f"probe: asked look {entry['target_probability']:.0%}, old look {entry['source_probability']:.0%}")
    print(f"wrote {entry['edited']}, {entry['panel']}, {record['record']}")


def _decibels(entry: dict[str, Any], what: str) -> str:
    return f"{entry[f'{what}_psnr']:.1f} dB"


@app.command()
def samples(
    out: Annotated[
        Path | None, typer.Option(help="Write source, mask and ground truth of each into this folder.")
    ] = None,
    force: Force = False,
    json_: Json = False,
) -> None:
    """List the bundled samples, or write them as pictures."""
    from bitresedit.data import load_sample, make_folder, sample_names

    rows = []
    if out is not None:
        make_folder(out)
    for name in track(sample_names(), "rendering"):
        item = load_sample(name)
        rows.append({"sample": name, "source": item.source, "target": item.target, "mask": float(item.mask.mean())})
        if out is not None:
            for part, picture in (("source", item.image), ("mask", item.mask), ("truth", item.truth)):
                save_image(out / f"{name}-{part}.png", picture, force=force)
    if out is not None:
        write_json(out / "samples.json", rows, force=force)
    emit_json(rows) if json_ else table([{**row, "mask": f"{row['mask']:.0%}"} for row in rows])


@app.command()
@with_model
def sample(
    caption: Annotated[str, typer.Argument(help='For example "a small green glass cone on snow under a night sky".')],
    out: Annotated[Path, typer.Option(help="Picture to write; several seeds are put side by side.")] = Path(
        "sample.png"
    ),
    seed: Seed = None,
    seeds: Seeds = None,
    model: ModelChoice = ModelChoice(),
    settings: Set = None,
    force: Force = False,
) -> None:
    """Draw pictures from a caption, without editing."""
    import torch

    from bitresedit.frames import to_picture
    from bitresedit.rollout import generate

    refuse_existing(out, force)
    chosen, values = chosen_seeds(seed, seeds), parse_settings(settings)
    loaded = model.load()
    latents = generate(loaded, [caption] * len(chosen), settings_for(loaded, values), chosen)
    save_image(out, to_picture(torch.cat(list(loaded.decode(latents)), dim=-1)), force=force)
    print(f"wrote {out}: {len(chosen)} picture{'s' if len(chosen) > 1 else ''}, seeds {', '.join(map(str, chosen))}")


@app.command("mask")
@with_model
def mask_command(
    image: Picture,
    source: Annotated[str, typer.Option(help="What the picture shows.")],
    target: Annotated[str, typer.Option(help="What it should show.")],
    out: Annotated[Path, typer.Option(help="Mask to write: white = edit.")] = Path("mask.png"),
    model: ModelChoice = ModelChoice(),
    force: Force = False,
) -> None:
    """Find a mask from where two prompts disagree, as --mask auto does."""
    from bitresedit.frames import fitted
    from bitresedit.gate import auto_mask
    from bitresedit.prompts import checked_prompts

    refuse_existing(out, force)
    prompts = checked_prompts(source, target)
    picture, loaded = open_image(image), model.load()
    frame = fitted(loaded, picture)
    found = auto_mask(loaded, frame.pixels(picture).to(loaded.device), *prompts)
    save_image(out, frame.unmask(found, picture.size), force=force)
    print(f"wrote {out}: {float(found.float().mean()):.0%} of what the model sees")


@app.command()
@with_model
def encode(
    image: Picture,
    out: Annotated[Path, typer.Option(help="Bits to write, one array a scale.")] = Path("bits.npz"),
    model: ModelChoice = ModelChoice(),
    force: Force = False,
) -> None:
    """Write a picture's bits, scale by scale."""
    from bitresedit.frames import fitted, psnr

    refuse_existing(out, force)
    picture, loaded = open_image(image), model.load()
    pixels = fitted(loaded, picture).pixels(picture).to(loaded.device)
    bits = loaded.encode_image(pixels)
    write_npz(out, {f"scale_{k + 1:02d}": scale[0].cpu().numpy() for k, scale in enumerate(bits)}, force=force)
    rebuilt = loaded.decode(loaded.bsq.sum(bits))
    count, quality = sum(scale.numel() for scale in bits), psnr(rebuilt[0].cpu(), pixels[0].cpu())
    print(f"wrote {out}: {count} bits in {len(bits)} scales; they reproduce the picture at {quality:.1f} dB")


@app.command()
@with_model
def decode(
    bits: Annotated[Path, typer.Argument(help="A file that encode wrote.")],
    out: Annotated[Path, typer.Option(help="Picture to write.")] = Path("decoded.png"),
    model: ModelChoice = ModelChoice(),
    force: Force = False,
) -> None:
    """Turn bits back into a picture."""
    from bitresedit.edit_files import read_bits
    from bitresedit.frames import to_picture

    refuse_existing(out, force)
    loaded = model.load()
    scales = read_bits(bits, loaded)  # which may give the model another shape, and so another quantiser
    picture = to_picture(loaded.decode(loaded.bsq.sum(scales))[0])
    save_image(out, picture, force=force)
    print(f"wrote {out}: {picture.width}x{picture.height}")


@app.command("bench")
@with_model
def bench_command(
    suite: Annotated[
        Literal["scenes", "piebench"], typer.Option(help="Rendered edits, or PIE-Bench from --data.")
    ] = "scenes",
    methods: Annotated[str, typer.Option(help="Names with commas, or all.")] = "bitresedit,aredit_mask,inpaint",
    count: Annotated[
        int | None, typer.Option(min=1, help="Number of edits.  [default: 60 scenes, or all of PIE-Bench]")
    ] = None,
    seeds: Annotated[str, typer.Option(help="A number of seeds, 0,5 or 1..4.")] = "1",
    data: Annotated[
        Path | None, typer.Option(help="piebench: folder with mapping_file.json and annotation_images.")
    ] = None,
    clip: Annotated[Path | None, typer.Option(help="piebench: folder of CLIP ViT-L/14.")] = None,
    lpips: Annotated[Path | None, typer.Option(help="piebench: folder of SqueezeNet for LPIPS.")] = None,
    dino: Annotated[Path | None, typer.Option(help="piebench: folder of DINO ViT-B/8.")] = None,
    shard: Annotated[str, typer.Option(help="i/n: every n-th item from the i-th, for several machines.")] = "1/1",
    batch: Batch = None,
    model: ModelChoice = ModelChoice(),
    settings: Set = None,
    out: Annotated[Path, typer.Option(help="Folder of rows and pictures.")] = Path("bench"),
    resume: Resume = False,
    force: Force = False,
    json_: Json = False,
) -> None:
    """Compare methods on a suite; every finished item is kept, so a stopped run resumes."""
    from bitresedit import bench
    from bitresedit.baselines import METHODS, check_methods

    names = check_methods(list(METHODS) if methods == "all" else [m.strip() for m in methods.split(",")])
    part, chosen, values = bench.parse_shard(shard), parse_seeds(seeds), parse_settings(settings)
    if suite == "piebench" and data is None:
        raise InputError("--suite piebench needs --data", "the folder that holds mapping_file.json")
    networks = {"clip": clip, "lpips": lpips, "dino": dino}
    tasks, score = bench.load_suite(suite, count, data, networks, model.device)
    loaded = model.load()
    plan = bench.BenchSettings(suite, model.name, names, chosen, settings_for(loaded, values), len(tasks), part)
    at_once = model.at_once(batch)
    rows = bench.run_bench(loaded, tasks, score, plan, out, batch=at_once, resume=resume, force=force, track=track)
    means = bench.summarise_bench(rows)
    emit_json(means) if json_ else table(means)


@app.command()
def train(
    recipe: Annotated[str, typer.Option(help="scene96 (the bundled model), scene64, or smoke.")] = "scene96",
    out: Annotated[Path, typer.Option(help="Folder of the run.")] = Path("trained"),
    seed: Annotated[int, typer.Option(min=0, help="Seed of pictures, weights and batches.")] = 0,
    precision: Annotated[
        Literal["auto", "fp32", "bf16"], typer.Option(help="Of matrix products; auto takes the faster on this CPU.")
    ] = "auto",
    resume: Resume = False,
    force: Force = False,
) -> None:
    """Train the scene model from rendered pictures (scene96: about two hours on two cores)."""
    from bitresedit.train import train as run

    done = run(recipe, out, seed=seed, precision=precision, resume=resume, force=force)
    table([{"gate": name, **values} for name, values in done.gates.items()])
    print(f"\nwrote {done.weights}, {done.record}, {done.figure}, {done.samples}; use it with --ckpt {done.weights}")


@app.command()
def inspect(
    checkpoint: Annotated[Path, typer.Argument(help="A checkpoint file or a folder of shards.")],
    json_: Json = False,
) -> None:
    """Say what a checkpoint holds, without running anything in it."""
    from bitresedit.checkpoint import describe

    found = describe(checkpoint)
    emit_json(found) if json_ else table([{"what": key, "value": _short(value)} for key, value in found.items()])


def _short(value: Any) -> str:
    if isinstance(value, list | dict):
        items = list(value)
        return f"{len(items)}" + (
            f": {', '.join(map(str, items[:4]))}{', ...' if len(items) > 4 else ''}" if items else ""
        )
    return str(value)
