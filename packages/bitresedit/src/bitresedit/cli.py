"""The command line: parse, call the library, print."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from papers_shared.artifacts import write_json, write_npz
from papers_shared.cli import emit_json, paper_app, parse_seeds, table, track, verb
from papers_shared.errors import InputError
from papers_shared.images import open_image, save_image

app = paper_app("bitresedit", help="Edit a photo by text inside a mask, without training or inversion.")
edit_script = verb(app, "edit")

BackboneName = Literal["scene", "infinity"]
BackboneOption = Annotated[
    BackboneName, typer.Option("--backbone", help="scene: the bundled small model; infinity: Infinity-2B or 8B.")
]
Ckpt = Annotated[
    Path | None, typer.Option(help="infinity: folder with transformer, VAE and T5; scene: a file that train wrote.")
]
Budget = Annotated[str, typer.Option("--pn", help="infinity: pixel budget 0.06M, 0.25M (512x512), 0.60M or 1M.")]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1, ...")]
Dtype = Annotated[Literal["float32", "bfloat16"], typer.Option(help="Precision of the transformer.")]
Set = Annotated[
    list[str] | None, typer.Option("--set", help="A setting, for example --set eta=3 --set lock=auto; repeatable.")
]
Force = Annotated[bool, typer.Option("--force", help="Replace files that are there.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the sampler.")]
Source = Annotated[str | None, typer.Option(help="What the picture shows, in words.")]
Target = Annotated[str | None, typer.Option(help="What it should show.")]

_UNFAMILIAR_DB = 30.0
_ITEMS_AT_ONCE = 8


def load_backbone(name: BackboneName, ckpt: Path | None, pn: str, device: str, dtype: str) -> Any:
    """Load the model that the options name."""
    import torch

    try:
        place, precision = torch.device(device), getattr(torch, dtype)
        torch.empty(0, device=place)
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"--device {device}: {str(error).splitlines()[0]}") from None
    if name == "infinity":
        from bitresedit.backbones.infinity import Infinity

        if ckpt is None:
            raise InputError("--backbone infinity needs --ckpt", "give the folder with transformer, VAE and T5")
        return Infinity.from_folder(ckpt, pn, place, precision)
    from bitresedit.backbones.scene_var import SceneVAR

    return SceneVAR.load_default(place, precision) if ckpt is None else SceneVAR.load(ckpt, place, precision)


def load_config(backbone: Any, settings: list[str] | None) -> Any:
    """Give the backbone's settings with those of ``--set``."""
    from bitresedit.editor import default_config

    pairs = [text.partition("=") for text in settings or []]
    for name, equals, value in pairs:
        if not (name and equals and value):
            raise InputError(f"--set {name}{equals}{value}: not a setting", "write name=value, for example --set eta=3")
    return default_config(backbone).with_text({name.strip(): value.strip() for name, _, value in pairs})


@app.command()
def edit(
    image: Annotated[
        Path | None, typer.Argument(help="A picture, or a folder of pictures. Without it: a bundled sample.")
    ] = None,
    source: Source = None,
    target: Target = None,
    mask: Annotated[str | None, typer.Option(help="auto, a picture (white = edit), or a box x0,y0,x1,y1.")] = None,
    sample: Annotated[
        str, typer.Option(help="Which bundled sample, when no picture is given; see `samples`.")
    ] = "default",
    backbone: BackboneOption = "scene",
    ckpt: Ckpt = None,
    pn: Budget = "0.25M",
    device: Device = "cpu",
    dtype: Dtype = "float32",
    method: Annotated[str, typer.Option(help="bitresedit, or a peer or ablation: aredit, inpaint, ...")] = "bitresedit",
    seed: Seed = 42,
    seeds: Annotated[str | None, typer.Option(help="Several edits: a number of seeds, 0,5 or 1..4.")] = None,
    settings: Set = None,
    out: Annotated[
        Path | None, typer.Option(help="Edited picture; a folder for several.  [default: edited.png or edits]")
    ] = None,
    panel: Annotated[Path | None, typer.Option(help="Panel picture.  [default: panel.png, or beside --out]")] = None,
    force: Force = False,
    json_: Json = False,
) -> None:
    """Edit a picture by text inside a mask: before and after in words, and where."""
    from bitresedit.edit_files import edit_files, plan_edits

    plan = plan_edits(image, source, target, mask, sample, parse_seeds(seeds) if seeds else (seed,), out, panel, force)
    model = load_backbone(backbone, ckpt, pn, device, dtype)
    record = edit_files(model, load_config(model, settings), method, plan, _ITEMS_AT_ONCE, force, track)
    for entry in record["edits"]:
        _warn_if_unfamiliar(backbone, entry)
    if json_:
        emit_json(record)
        return
    if len(record["edits"]) == 1:
        _print_edit(record["edits"][0], record)
    else:
        table(
            [
                {k: e[k] for k in ("image", "seed", "background_psnr", "kept_codes_differ_by", "seconds", "edited")}
                for e in record["edits"]
            ]
        )
        print(f"\nwrote {len(record['edits'])} edits and their panels to {plan.folder}; record: {plan.record}")


def _warn_if_unfamiliar(backbone: str, entry: dict[str, Any]) -> None:
    import warnings

    if backbone == "scene" and entry["reconstruction_psnr"] < _UNFAMILIAR_DB:
        warnings.warn(
            f"{entry['image']}: the small scene model reproduces this picture at only "
            f"{entry['reconstruction_psnr']:.1f} dB PSNR (its own scenes: over 32); it draws simple rendered scenes. "
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
    kept = "identical" if entry["kept_codes_differ_by"] == 0 else f"differ by up to {entry['kept_codes_differ_by']:.3g}"
    print(f"\n{record['method']}, seed {entry['seed']}: '{entry['source']}' -> '{entry['target']}'")
    print(f"mask {entry['mask_share']:.0%} of the picture; codes outside the gate {kept}; {entry['seconds']:.2f} s")
    print(
        f"background PSNR {entry['background_psnr']:.1f} dB, of the codes alone {entry['reconstruction_psnr']:.1f} dB"
    )
    if "truth_psnr" in entry:
        print(f"against the ground truth inside the mask: {entry['truth_psnr']:.1f} dB")
    if "target_probability" in entry:
        print(f"probe: asked look {entry['target_probability']:.0%}, old look {entry['source_probability']:.0%}")
    print(f"wrote {entry['edited']}, {entry['panel']}, {record['record']}")


@app.command()
def samples(
    out: Annotated[
        Path | None, typer.Option(help="Write source, mask and ground truth of each into this folder.")
    ] = None,
    force: Force = False,
    json_: Json = False,
) -> None:
    """List the bundled samples, or write them as pictures."""
    from bitresedit.data import load_sample, sample_names

    rows = []
    for name in track(sample_names(), "rendering"):
        item = load_sample(name)
        rows.append({"sample": name, "source": item.source, "target": item.target, "mask": float(item.mask.mean())})
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
            for part, picture in (("source", item.image), ("mask", item.mask), ("truth", item.truth)):
                save_image(out / f"{name}-{part}.png", picture, force=force)
    if out is not None:
        write_json(out / "samples.json", rows, force=force)
    emit_json(rows) if json_ else table([{**row, "mask": f"{row['mask']:.0%}"} for row in rows])


@app.command()
def sample(
    caption: Annotated[str, typer.Argument(help='For example "a small green glass cone on snow under a night sky".')],
    out: Annotated[Path, typer.Option(help="Picture to write; several seeds are put side by side.")] = Path(
        "sample.png"
    ),
    seed: Seed = 42,
    seeds: Annotated[str | None, typer.Option(help="A number of seeds, 0,5 or 1..4.")] = None,
    backbone: BackboneOption = "scene",
    ckpt: Ckpt = None,
    pn: Budget = "0.25M",
    device: Device = "cpu",
    dtype: Dtype = "float32",
    settings: Set = None,
    force: Force = False,
) -> None:
    """Draw pictures from a caption, without editing."""
    import torch

    from bitresedit.edit_files import refuse_existing
    from bitresedit.frames import Frame
    from bitresedit.rollout import generate

    refuse_existing([out], force)
    model = load_backbone(backbone, ckpt, pn, device, dtype)
    chosen = parse_seeds(seeds) if seeds else (seed,)
    latents = generate(model, [caption] * len(chosen), load_config(model, settings), chosen)
    pixels = torch.cat(list(model.decode(latents)), dim=-1)
    height, width = pixels.shape[-2:]
    save_image(out, Frame((0, 0, width, height), (height, width)).picture(pixels), force=force)
    print(f"wrote {out}: {len(chosen)} picture{'s' if len(chosen) > 1 else ''}, seeds {', '.join(map(str, chosen))}")


@app.command("mask")
def mask_command(
    image: Annotated[Path, typer.Argument(help="A picture.")],
    source: Annotated[str, typer.Option(help="What the picture shows.")],
    target: Annotated[str, typer.Option(help="What it should show.")],
    out: Annotated[Path, typer.Option(help="Mask to write: white = edit.")] = Path("mask.png"),
    backbone: BackboneOption = "scene",
    ckpt: Ckpt = None,
    pn: Budget = "0.25M",
    device: Device = "cpu",
    dtype: Dtype = "float32",
    force: Force = False,
) -> None:
    """Find a mask from where two prompts disagree, as --mask auto does."""
    import numpy as np
    from PIL import Image

    from bitresedit.edit_files import refuse_existing
    from bitresedit.frames import Frame
    from bitresedit.gate import auto_mask
    from bitresedit.prompts import checked_prompts

    refuse_existing([out], force)
    before, after = checked_prompts(source, target)
    picture = open_image(image)
    model = load_backbone(backbone, ckpt, pn, device, dtype)
    if hasattr(model, "fit"):
        model.fit(picture.height, picture.width)
    frame = Frame.fit((picture.height, picture.width), model.image_size)
    found = auto_mask(model, frame.pixels(picture).to(model.device), before, after).cpu().numpy()
    left, top, right, bottom = frame.box
    whole = Image.new("L", picture.size)
    whole.paste(
        Image.fromarray(found.astype(np.uint8) * 255).resize((right - left, bottom - top), Image.Resampling.NEAREST),
        (left, top),
    )
    save_image(out, whole, force=force)
    print(f"wrote {out}: {found.mean():.0%} of what the model sees")


@app.command()
def encode(
    image: Annotated[Path, typer.Argument(help="A picture.")],
    out: Annotated[Path, typer.Option(help="Bits to write, one array a scale.")] = Path("bits.npz"),
    backbone: BackboneOption = "scene",
    ckpt: Ckpt = None,
    pn: Budget = "0.25M",
    device: Device = "cpu",
    dtype: Dtype = "float32",
    force: Force = False,
) -> None:
    """Write a picture's bits, scale by scale."""
    from bitresedit.edit_files import refuse_existing
    from bitresedit.editor import psnr
    from bitresedit.frames import Frame

    refuse_existing([out], force)
    picture = open_image(image)
    model = load_backbone(backbone, ckpt, pn, device, dtype)
    if hasattr(model, "fit"):
        model.fit(picture.height, picture.width)
    pixels = Frame.fit((picture.height, picture.width), model.image_size).pixels(picture).to(model.device)
    bits = model.encode_image(pixels)
    write_npz(out, {f"scale_{k + 1:02d}": scale[0].cpu().numpy() for k, scale in enumerate(bits)}, force=force)
    rebuilt = model.decode(model.bsq.sum(bits))
    count, quality = sum(scale.numel() for scale in bits), psnr(rebuilt[0], pixels[0])
    print(f"wrote {out}: {count} bits in {len(bits)} scales; they reproduce the picture at {quality:.1f} dB")


@app.command()
def decode(
    bits: Annotated[Path, typer.Argument(help="A file that encode wrote.")],
    out: Annotated[Path, typer.Option(help="Picture to write.")] = Path("decoded.png"),
    backbone: BackboneOption = "scene",
    ckpt: Ckpt = None,
    pn: Budget = "0.25M",
    device: Device = "cpu",
    dtype: Dtype = "float32",
    force: Force = False,
) -> None:
    """Turn bits back into a picture."""
    from bitresedit.edit_files import read_bits, refuse_existing
    from bitresedit.frames import Frame

    refuse_existing([out], force)
    model = load_backbone(backbone, ckpt, pn, device, dtype)
    pixels = model.decode(model.bsq.sum(read_bits(bits, model)))[0]
    height, width = pixels.shape[-2:]
    save_image(out, Frame((0, 0, width, height), (height, width)).picture(pixels), force=force)
    print(f"wrote {out}: {width}x{height}")


@app.command("bench")
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
    batch: Annotated[int, typer.Option(min=1, help="Edits at once.")] = _ITEMS_AT_ONCE,
    backbone: BackboneOption = "scene",
    ckpt: Ckpt = None,
    pn: Budget = "0.25M",
    device: Device = "cpu",
    dtype: Dtype = "float32",
    settings: Set = None,
    out: Annotated[Path, typer.Option(help="Folder of rows and pictures.")] = Path("bench"),
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a run that was stopped.")] = False,
    force: Force = False,
    json_: Json = False,
) -> None:
    """Compare methods on a suite; every finished item is kept, so a stopped run resumes."""
    from bitresedit import bench
    from bitresedit.baselines import METHODS, check_methods

    names = check_methods(list(METHODS) if methods == "all" else [m.strip() for m in methods.split(",")])
    part = bench.parse_shard(shard)
    if suite == "piebench" and data is None:
        raise InputError("--suite piebench needs --data", "the folder that holds mapping_file.json")
    model = load_backbone(backbone, ckpt, pn, device, dtype)
    tasks, score = bench.load_suite(suite, count, data, {"clip": clip, "lpips": lpips, "dino": dino}, device)
    origin = backbone if ckpt is None else f"{backbone} {ckpt.name}"
    plan = bench.BenchSettings(suite, origin, names, parse_seeds(seeds), load_config(model, settings), len(tasks), part)
    rows = bench.run_bench(model, tasks, score, plan, out, batch=batch, resume=resume, force=force, track=track)
    means = bench.summarise_bench(rows)
    emit_json(means) if json_ else table(means)


@app.command()
def train(
    recipe: Annotated[str, typer.Option(help="scene96 (the bundled model), scene64, or smoke.")] = "scene96",
    out: Annotated[Path, typer.Option(help="Folder of the run.")] = Path("trained"),
    seed: Annotated[int, typer.Option(min=0, help="Seed of pictures, weights and batches.")] = 0,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a run that was stopped.")] = False,
    force: Force = False,
) -> None:
    """Train the scene model from rendered pictures (scene96: about two hours on two cores)."""
    from bitresedit.train import train as run

    done = run(recipe, out, seed=seed, resume=resume, force=force)
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
