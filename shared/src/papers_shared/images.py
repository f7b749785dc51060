"""Open any picture that a user may have as an upright image of a known mode, or say why it cannot be; save it whole."""

from __future__ import annotations

import io
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from papers_shared._atomic import atomic_path
from papers_shared.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from PIL import Image

MAX_PIXELS = 100_000_000
"""The default limit of `open_image`: 100 megapixels, about 300 MB of RGB in memory."""

_FORMATS = {
    ".png": "PNG",
    ".jpg": "JPEG",
    ".jpeg": "JPEG",
    ".webp": "WEBP",
    ".tif": "TIFF",
    ".tiff": "TIFF",
    ".bmp": "BMP",
    ".gif": "GIF",
}
_STORED = frozenset({"1", "L", "LA", "P", "RGB", "RGBA"})
"""Modes that every format here stores, or Pillow converts without loss; others become 8-bit RGB, RGBA or L."""
_DEEP = {"PNG": frozenset({"I;16"}), "TIFF": frozenset({"I;16", "I", "F"})}
_PILLOW_LIMIT = threading.Lock()


def open_image(
    source: str | os.PathLike[str] | bytes | Image.Image | np.ndarray,
    mode: str | None = "RGB",
    *,
    max_pixels: int = MAX_PIXELS,
    min_side: int = 1,
    background: str | tuple[int, int, int] = "white",
    frame: int | None = None,
) -> Image.Image:
    """Open a picture upright, in one mode, with 8 bits a channel.

    Rotation by EXIF is applied; an embedded colour profile other than sRGB is converted to sRGB; palettes, grey, CMYK
    and 16-bit pictures are converted; transparency is laid over ``background`` unless the mode keeps it.

    Parameters
    ----------
    source
        A file, the bytes of one, a PIL image, or an array as in `to_image`.
    mode
        The mode wanted: ``"RGB"``, ``"RGBA"``, ``"L"``. None keeps RGB, RGBA or L as found.
    max_pixels
        Refuse larger pictures before they are decoded.
    min_side
        Refuse pictures with a shorter side, in pixels.
    background
        The colour under transparent pixels.
    frame
        Which frame of an animation or page of a document to take; without it these are refused.

    Returns
    -------
    PIL.Image.Image
        Loaded, with no metadata left that could turn it a second time.

    Raises
    ------
    InputError
        Missing, empty, truncated, corrupt, not a picture, animated, too large, too small; names the file and reason.
    """
    from PIL import Image

    if isinstance(source, Image.Image):
        name, picture = "image", source
    elif isinstance(source, (str, os.PathLike)):
        name = source if isinstance(source, str) else str(Path(source))
        picture = _decode(io.BytesIO(_read(name)), name)
    elif isinstance(source, (bytes, bytearray, memoryview)):
        name = "image"
        picture = _decode(io.BytesIO(source), name)
    else:
        name, picture = "image", to_image(source)
    _check_size(picture, name, max_pixels, min_side)
    picture = _one_frame(picture, name, frame)
    _load(picture, name)
    return _convert(_upright(picture), mode, background, name)


def to_image(array: Image.Image | np.ndarray) -> Image.Image:
    """Turn an array into a PIL image; a PIL image is returned as it is.

    Parameters
    ----------
    array
        ``(h, w)`` grey, ``(h, w, 1)`` grey, ``(h, w, 3)`` RGB or ``(h, w, 4)`` RGBA; uint8; bool; uint16, scaled by
        1/257; or floating point in [0, 1], clipped and rounded to the nearest of 255 steps.

    Raises
    ------
    InputError
        Another shape or dtype, or NaN.
    """
    import numpy as np
    from PIL import Image

    if isinstance(array, Image.Image):
        return array
    pixels = np.asarray(array)
    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[:, :, 0]
    if pixels.ndim not in (2, 3) or (pixels.ndim == 3 and pixels.shape[2] not in (3, 4)) or 0 in pixels.shape:
        raise InputError(f"an image array must be (h, w), (h, w, 3) or (h, w, 4), not {pixels.shape}")
    if pixels.dtype == np.bool_:
        pixels = pixels * np.uint8(255)
    elif pixels.dtype == np.uint16:
        pixels = (pixels.astype(np.uint32) + 128) // 257
    elif np.issubdtype(pixels.dtype, np.floating):
        if np.isnan(pixels).any():
            raise InputError("the image array contains NaN")
        pixels = np.rint(np.clip(pixels, 0, 1) * 255)
    elif pixels.dtype != np.uint8:
        raise InputError(
            f"an image array of {pixels.dtype} has no known range", hint="give uint8, or floating point in [0, 1]"
        )
    return Image.fromarray(np.ascontiguousarray(pixels.astype(np.uint8)))


def save_image(
    path: str | os.PathLike[str], image: Image.Image | np.ndarray, *, quality: int = 95, force: bool = True
) -> Path:
    """Save an image atomically in the format that the suffix names, without metadata.

    Parameters
    ----------
    path
        Ends in ``.png .jpg .jpeg .webp .tif .tiff .bmp`` or ``.gif``.
    image
        A PIL image, or an array as in `to_image`. JPEG and BMP cannot be transparent: white shows through. CMYK and
        other modes that a format cannot hold become RGB, RGBA or grey; PNG keeps 16 bits, TIFF also 32.
    quality
        1 to 100, for JPEG and WebP.
    force
        False refuses to replace an existing file.

    Returns
    -------
    Path
        The file written.

    Raises
    ------
    InputError
        Another suffix, an existing file without ``force``, a folder that cannot be written.
    """
    target = Path(path)
    kind = _FORMATS.get(target.suffix.lower())
    if kind is None:
        raise InputError(
            f"{target}: unknown image format {target.suffix!r}", hint="end the name in .png, .jpg or .webp"
        )
    picture = to_image(image)
    if kind in ("JPEG", "BMP"):
        picture = _convert(picture, "L" if picture.mode in ("1", "L") else "RGB", "white", "image")
    elif picture.mode not in _STORED | _DEEP.get(kind, frozenset()):
        picture = _convert(picture, None, "white", "image")
    picture = picture.copy()
    picture.info = {}
    options: dict[str, Any] = {"quality": quality} if kind in ("JPEG", "WEBP") else {}
    if kind == "JPEG" and quality >= 90:
        options["subsampling"] = 0
    with atomic_path(target, force=force) as temporary:
        picture.save(temporary, kind, **options)
    return target


def _read(name: str) -> bytes:
    if name.startswith(("http://", "https://")):
        raise InputError(f"{name} is an address, not a file", hint="download it first")
    try:
        data = Path(name).read_bytes()
    except OSError as error:
        raise InputError(f"cannot read image {name}: {(error.strerror or str(error)).lower()}") from error
    if not data:
        raise InputError(f"{name} is empty")
    return data


def _decode(file: io.BytesIO, name: str) -> Image.Image:
    from PIL import Image, UnidentifiedImageError

    # Pillow's own limit is a global that warns at one size and raises at twice that; ours is exact and per call.
    with _PILLOW_LIMIT:
        before, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
        try:
            return Image.open(file)
        except UnidentifiedImageError:
            raise InputError(
                f"{name} is not a picture, or damaged at its start", hint="use PNG, JPEG, WebP or TIFF"
            ) from None
        except Exception as error:  # the many ways in which decoders meet damaged headers
            raise InputError(f"{name} is damaged: {error}") from error
        finally:
            Image.MAX_IMAGE_PIXELS = before


def _check_size(picture: Image.Image, name: str, max_pixels: int, min_side: int) -> None:
    width, height = picture.size
    if width * height > max_pixels:
        raise InputError(
            f"{name} is {width}x{height}: {width * height / 1e6:.1f} megapixels of at most {max_pixels / 1e6:.4g}",
            hint="make it smaller first",
        )
    if min(width, height) < min_side:
        raise InputError(f"{name} is {width}x{height} pixels; each side must have at least {min_side}")


def _one_frame(picture: Image.Image, name: str, frame: int | None) -> Image.Image:
    try:
        # Phones store a still with its depth map or preview as a two-frame MPO.
        count = 1 if picture.format == "MPO" else getattr(picture, "n_frames", 1)
    except Exception as error:  # TIFF reads all its pages' headers to count them
        raise InputError(f"{name} is damaged: {error}") from error
    if frame is None:
        if count > 1:
            raise InputError(
                f"{name} has {count} frames; one picture is needed", hint="save the frame you want by itself"
            )
        return picture
    if not 0 <= frame < count:
        raise InputError(f"{name} has {count} frames, none numbered {frame}")
    try:
        picture.seek(frame)
    except Exception as error:
        raise InputError(f"{name}: frame {frame} is damaged: {error}") from error
    return picture


def _load(picture: Image.Image, name: str) -> None:
    try:
        picture.load()
    except MemoryError as error:
        raise InputError(f"{name} does not fit into memory at {picture.size[0]}x{picture.size[1]}") from error
    except Exception as error:  # truncated data, bad checksums, impossible palettes, ...
        kind = f"{picture.format} " if picture.format else ""
        raise InputError(f"{name} is a truncated or damaged {kind}picture: {error}") from error


def _upright(picture: Image.Image) -> Image.Image:
    from PIL import ImageOps

    try:
        return ImageOps.exif_transpose(picture)
    except Exception:  # damaged EXIF is no reason to refuse good pixels
        return picture


def _convert(picture: Image.Image, mode: str | None, background: Any, name: str) -> Image.Image:
    from PIL import Image

    picture = _eight_bit(picture, name)
    transparent = picture.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in picture.info
    grey = picture.mode in ("1", "L", "LA", "La")
    wanted = mode or ("RGBA" if transparent else "L" if grey else "RGB")
    try:
        if not transparent:
            picture = _to_srgb(picture)
        elif wanted != "RGBA":
            layer = picture.convert("RGBA")
            picture = Image.alpha_composite(Image.new("RGBA", layer.size, background), layer).convert("RGB")
        result = picture.convert(wanted)
    except ValueError as error:
        raise InputError(f"{name}: cannot convert colour mode {picture.mode} to {wanted}") from error
    if result is picture:
        result = picture.copy()
    result.info = {}
    return result


def _eight_bit(picture: Image.Image, name: str) -> Image.Image:
    """Scale 16-bit, 32-bit integer and floating-point grey to 8 bits; Pillow's own conversion would clip them."""
    import numpy as np

    if not picture.mode.startswith(("I", "F")):
        return picture
    values = np.asarray(picture)
    if picture.mode == "F":
        if not np.isfinite(values).all() or values.min() < 0 or values.max() > 1:
            raise InputError(f"{name} holds floating-point values outside [0, 1]", hint="scale them first")
        return to_image(values)
    if values.min() < 0 or values.max() > 65535:
        raise InputError(
            f"{name} holds {values.min()} to {values.max()}, more than 16 bits", hint="scale to 16 or 8 bits"
        )
    return to_image(values.astype(np.uint16))


def _to_srgb(picture: Image.Image) -> Image.Image:
    """Convert colours by the embedded profile, so that wide-gamut photos and CMYK look as meant."""
    profile = picture.info.get("icc_profile")
    if not profile or picture.mode not in ("RGB", "CMYK"):
        return picture
    try:
        from PIL import ImageCms

        source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        if "sRGB" in ImageCms.getProfileDescription(source):
            return picture  # the round trip would change values by one
        converted = ImageCms.profileToProfile(picture, source, ImageCms.createProfile("sRGB"), outputMode="RGB")
    except Exception:  # a damaged or mismatched profile, or Pillow without LittleCMS: keep the plain values
        return picture
    return converted if converted is not None else picture
