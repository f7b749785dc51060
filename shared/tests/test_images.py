"""Any picture a user may have comes out upright and right in its colours, or the reason why not is named."""

import io
import struct
import warnings
import zlib

import numpy as np
import pytest
from PIL import Image, ImageCms

from papers_shared import InputError
from papers_shared.images import open_image, save_image, to_image

PIXELS = np.random.default_rng(0).integers(0, 256, (6, 9, 3), dtype=np.uint8)
ROWS, COLUMNS = np.mgrid[0:200:5, 0:240:5]
SMOOTH = np.stack([COLUMNS, ROWS, np.full_like(ROWS, 90)], axis=-1).astype(np.uint8)


def data(image, kind, **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def pixels(image):
    return np.asarray(image)


def png(width, height, depth, colour, rows):
    """Make a PNG by hand, for what Pillow does not write."""

    def chunk(name, body):
        return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))

    head = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF", "WEBP"])
def test_lossless_formats_keep_every_pixel(tmp_path, kind):
    path = tmp_path / "photo"
    path.write_bytes(data(Image.fromarray(PIXELS), kind, **({"lossless": True} if kind == "WEBP" else {})))
    for source in (path, str(path), path.read_bytes(), Image.open(io.BytesIO(path.read_bytes())), PIXELS):
        image = open_image(source)
        assert image.mode == "RGB"
        np.testing.assert_array_equal(pixels(image), PIXELS)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_rotation_is_applied_once(tmp_path, orientation):
    upright = Image.fromarray(PIXELS)
    turns = {
        **{2: Image.Transpose.FLIP_LEFT_RIGHT, 3: Image.Transpose.ROTATE_180, 4: Image.Transpose.FLIP_TOP_BOTTOM},
        **{5: Image.Transpose.TRANSPOSE, 6: Image.Transpose.ROTATE_90, 7: Image.Transpose.TRANSVERSE},
        8: Image.Transpose.ROTATE_270,
    }
    stored = upright.transpose(turns[orientation]) if orientation in turns else upright
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = tmp_path / "phone.png"
    path.write_bytes(data(stored, "PNG", exif=exif))
    image = open_image(path)
    np.testing.assert_array_equal(pixels(image), PIXELS)
    assert image.getexif().get(0x0112, 1) == 1
    again = save_image(tmp_path / "again.png", image)
    np.testing.assert_array_equal(pixels(open_image(again)), PIXELS)


def test_damaged_exif_does_not_cost_the_picture():
    raw = data(Image.fromarray(PIXELS), "PNG", exif=b"Exif\x00\x00not really exif")
    np.testing.assert_array_equal(pixels(open_image(raw)), PIXELS)


def test_transparency_is_laid_over_the_background_or_kept():
    layers = np.dstack([np.full((2, 2, 3), [200, 0, 0], np.uint8), np.array([[255, 0], [128, 255]], np.uint8)])
    raw = data(Image.fromarray(layers), "PNG")
    flat = pixels(open_image(raw))
    assert flat[0, 0].tolist() == [200, 0, 0]
    assert flat[0, 1].tolist() == [255, 255, 255]
    assert abs(flat[1, 0].astype(int) - [227, 127, 127]).max() <= 1
    assert pixels(open_image(raw, background="black"))[0, 1].tolist() == [0, 0, 0]
    np.testing.assert_array_equal(pixels(open_image(raw, "RGBA")), layers)
    np.testing.assert_array_equal(pixels(open_image(raw, None)), layers)
    assert open_image(raw, "L").mode == "L"


def test_palettes_with_and_without_transparency():
    palette = Image.new("P", (2, 1))
    palette.putpalette([10, 20, 30, 40, 50, 60])
    palette.putdata([0, 1])
    expected = [[[10, 20, 30], [40, 50, 60]]]
    assert pixels(open_image(data(palette, "PNG"))).tolist() == expected
    clear = data(palette, "PNG", transparency=1)
    assert pixels(open_image(clear)).tolist() == [[[10, 20, 30], [255, 255, 255]]]
    assert pixels(open_image(clear, None))[..., 3].tolist() == [[255, 0]]


@pytest.mark.parametrize("mode", ["1", "L", "LA"])
def test_grey_pictures(mode):
    image = Image.new(mode, (3, 2), 255 if mode != "LA" else (100, 255))
    level = 100 if mode == "LA" else 255
    assert (pixels(open_image(data(image, "PNG"))) == level).all()
    assert open_image(data(image, "PNG"), None).mode in ("L", "RGBA")


def test_sixteen_bit_grey_is_scaled_not_clipped():
    levels = np.array([[0, 257, 25700, 65535]], np.uint16)
    for raw in (data(Image.fromarray(levels), "PNG"), data(Image.fromarray(levels), "TIFF")):
        assert pixels(open_image(raw, "L")).tolist() == [[0, 1, 100, 255]]
        assert pixels(open_image(raw))[0, 2].tolist() == [100, 100, 100]


def test_sixteen_bit_colour():
    rows = b"\x00" + struct.pack(">6H", 0, 25700, 65535, 257, 51400, 12850)
    assert pixels(open_image(png(2, 1, 16, 2, rows))).tolist() == [[[0, 100, 255], [1, 200, 50]]]


def test_thirty_two_bit_and_floating_point_pictures():
    assert pixels(open_image(Image.fromarray(np.array([[0, 65535]], np.int32)), "L")).tolist() == [[0, 255]]
    assert pixels(open_image(Image.fromarray(np.array([[0, 0.5]], np.float32)), "L")).tolist() == [[0, 128]]
    with pytest.raises(InputError, match="more than 16 bits"):
        open_image(Image.fromarray(np.array([[0, 70000]], np.int32)))
    with pytest.raises(InputError, match=r"outside \[0, 1\]"):
        open_image(Image.fromarray(np.array([[0, 255.0]], np.float32)))


def test_cmyk_becomes_the_colour_it_shows():
    image = Image.new("CMYK", (8, 8), (0, 255, 255, 0))  # full magenta and yellow: red
    red = pixels(open_image(data(image, "JPEG", quality=95)))[4, 4].astype(int)
    assert abs(red - [255, 0, 0]).max() <= 3
    assert pixels(open_image(data(image, "TIFF")))[0, 0].tolist() == [255, 0, 0]


def test_a_colour_profile_is_applied_unless_it_is_srgb():
    srgb = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    np.testing.assert_array_equal(pixels(open_image(data(Image.fromarray(SMOOTH), "PNG", icc_profile=srgb))), SMOOTH)
    lab = ImageCms.ImageCmsProfile(ImageCms.createProfile("LAB")).tobytes()  # does not fit an RGB picture
    for odd in (b"not a profile", lab):
        raw = data(Image.fromarray(SMOOTH), "PNG", icc_profile=odd)
        np.testing.assert_array_equal(pixels(open_image(raw)), SMOOTH)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF", "GIF", "BMP"])
@pytest.mark.parametrize("share", [0.05, 0.3, 0.6, 0.9])
def test_truncated_files_are_named(tmp_path, kind, share):
    raw = data(Image.fromarray(np.random.default_rng(1).integers(0, 256, (64, 64, 3), dtype=np.uint8)), kind)
    path = tmp_path / f"cut.{kind.lower()}"
    path.write_bytes(raw[: int(len(raw) * share)])
    with pytest.raises(InputError, match=r"cut\.") as caught:
        open_image(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["PNG", "GIF", "TIFF", "JPEG", "WEBP"])
def test_any_damaged_byte_gives_a_picture_or_an_input_error(kind):
    rng = np.random.default_rng(2)
    raw = bytearray(data(Image.fromarray(PIXELS), kind))
    for _ in range(150):
        broken = bytearray(raw)
        for place in rng.integers(0, len(raw), 3):
            broken[place] = rng.integers(0, 256)
        try:
            image = open_image(bytes(broken), max_pixels=10_000)
        except InputError:
            continue
        assert image.mode == "RGB"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "cannot read image"),
        (b"", "is empty"),
        (b"hello, not a picture", "is not a picture"),
        (b"\x89PNG\r\n\x1a\n", "damaged|not a picture"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "is not a picture"),
    ],
)
def test_what_is_no_picture_is_named(tmp_path, content, says):
    path = tmp_path / "photo.png"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=rf"photo\.png.*({says})|({says}).*photo\.png"):
        open_image(path)


def test_a_folder_and_an_address_are_no_pictures(tmp_path):
    with pytest.raises(InputError, match="is a directory"):
        open_image(tmp_path)
    with pytest.raises(InputError, match="is an address, not a file"):
        open_image("https://example.org/a.png")


@pytest.mark.parametrize("kind", ["GIF", "PNG", "WEBP", "TIFF"])
def test_animations_need_a_choice_of_frame(kind):
    frames = [Image.new("RGB", (4, 4), (level, 0, 0)) for level in (0, 120, 240)]
    raw = data(frames[0], kind, save_all=True, append_images=frames[1:])
    with pytest.raises(InputError, match="has 3 frames; one picture is needed"):
        open_image(raw)
    assert abs(int(pixels(open_image(raw, frame=2))[0, 0, 0]) - 240) <= 3
    with pytest.raises(InputError, match="has 3 frames, none numbered 3"):
        open_image(raw, frame=3)


def test_a_phone_s_two_part_photo_is_one_picture():
    frames = [Image.fromarray(SMOOTH), Image.fromarray(SMOOTH // 2)]
    raw = data(frames[0], "MPO", save_all=True, append_images=frames[1:], quality=100)
    assert abs(pixels(open_image(raw)).astype(int) - SMOOTH).mean() < 3


def test_a_decompression_bomb_is_refused_before_it_is_unpacked():
    bomb = png(60_000, 60_000, 1, 0, b"\0" * 1000)
    assert len(bomb) < 1000
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(InputError, match=r"60000x60000: 3600\.0 megapixels of at most 100"):
            open_image(bomb)


def test_the_limits_of_size_are_exact():
    raw = data(Image.fromarray(PIXELS), "PNG")
    assert open_image(raw, max_pixels=54, min_side=6).size == (9, 6)
    with pytest.raises(InputError, match="megapixels"):
        open_image(raw, max_pixels=53)
    with pytest.raises(InputError, match="each side must have at least 7"):
        open_image(raw, min_side=7)


def test_a_picture_above_pillow_s_own_limit_opens_if_asked(monkeypatch):
    """Pillow warns above its limit and raises above twice that, whatever its caller allows."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)
    raw = data(Image.fromarray(PIXELS), "PNG")
    assert open_image(raw, max_pixels=54).size == (9, 6)
    with pytest.raises(InputError, match="megapixels"):
        open_image(raw, max_pixels=53)
    assert Image.MAX_IMAGE_PIXELS == 10


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (np.array([[0, 255]], np.uint8), [[0, 255]]),
        (np.array([[[7], [8]]], np.uint8), [[7, 8]]),
        (np.array([[True, False]]), [[255, 0]]),
        (np.array([[0, 257, 65535]], np.uint16), [[0, 1, 255]]),
        (np.array([[-1.0, 0.5, 2.0]]), [[0, 128, 255]]),
        (np.array([[0.0, 0.998, 1.0]], np.float32), [[0, 254, 255]]),
    ],
)
def test_arrays_become_pictures(array, expected):
    assert pixels(to_image(array)).tolist() == expected


@pytest.mark.parametrize("step", range(256))
def test_eight_bits_survive_floating_point(step):
    assert pixels(to_image(np.full((1, 1), step / 255)))[0, 0] == step


@pytest.mark.parametrize(
    ("array", "says"),
    [
        (np.zeros((2, 2, 5), np.uint8), "must be"),
        (np.zeros(4, np.uint8), "must be"),
        (np.zeros((0, 4), np.uint8), "must be"),
        (np.zeros((2, 2), np.int64), "no known range"),
        (np.full((2, 2), np.nan), "NaN"),
        (np.array([["a"]]), "no known range"),
    ],
)
def test_arrays_that_are_no_pictures(array, says):
    with pytest.raises(InputError, match=says):
        open_image(array)


@pytest.mark.parametrize("suffix", ["png", "jpg", "JPEG", "webp", "tif", "tiff", "bmp", "gif"])
def test_saving_in_every_format_by_suffix(tmp_path, suffix):
    path = save_image(tmp_path / f"a.{suffix}", SMOOTH, quality=95)
    error = abs(pixels(open_image(path)).astype(int) - SMOOTH)
    assert error.mean() < {"gif": 12, "webp": 4, "jpg": 2, "JPEG": 2}.get(suffix, 1e-9)
    assert save_image(tmp_path / f"b.{suffix}", SMOOTH).read_bytes() == path.read_bytes()


def test_jpeg_of_a_transparent_picture_shows_white(tmp_path):
    clear = Image.new("RGBA", (8, 8), (0, 0, 0, 0))
    assert pixels(open_image(save_image(tmp_path / "a.jpg", clear))).min() > 250


def test_metadata_do_not_leak_into_saved_files(tmp_path):
    image = Image.fromarray(PIXELS)
    image.info = {"comment": b"private place", "icc_profile": b"x" * 100}
    assert b"private" not in save_image(tmp_path / "a.gif", image).read_bytes()
    assert image.info["comment"] == b"private place"


def test_saving_refuses_unknown_suffixes_and_existing_files(tmp_path):
    with pytest.raises(InputError, match=r"unknown image format '\.txt'"):
        save_image(tmp_path / "a.txt", PIXELS)
    path = save_image(tmp_path / "a.png", PIXELS)
    with pytest.raises(InputError, match="--force"):
        save_image(path, PIXELS, force=False)


def test_the_source_image_is_not_changed():
    image = Image.fromarray(PIXELS)
    image.info = {"a": 1}
    opened = open_image(image)
    opened.putpixel((0, 0), (1, 2, 3))
    assert image.getpixel((0, 0)) == tuple(PIXELS[0, 0])
    assert image.info == {"a": 1}


def test_a_colour_mode_that_pillow_cannot_convert_is_named(monkeypatch):
    def fail(*_, **__):
        raise ValueError("conversion from LAB to RGB not supported")

    image = Image.new("LAB", (2, 2))
    monkeypatch.setattr(Image.Image, "convert", fail)
    with pytest.raises(InputError, match="cannot convert colour mode LAB to RGB"):
        open_image(image)


@pytest.mark.parametrize("mode", ["CMYK", "YCbCr", "HSV", "RGBX", "RGBa", "PA", "LA", "I", "F", "I;16", "1"])
@pytest.mark.parametrize("suffix", ["png", "jpg", "webp", "tif", "bmp", "gif"])
def test_any_mode_can_be_saved_in_any_format(tmp_path, mode, suffix):
    """A format that cannot hold the mode gets the 8-bit picture that `open_image` makes of it."""
    ramp = np.arange(64, dtype=np.uint8).reshape(8, 8) * 4
    if mode in ("I", "I;16"):
        picture = Image.fromarray(ramp.astype(np.uint16) * 257 if mode == "I;16" else ramp.astype(np.int32) * 257)
    elif mode == "F":
        picture = Image.fromarray(ramp.astype(np.float32) / 255)
    else:
        source = Image.fromarray(ramp).convert("RGBA" if mode == "RGBa" else "P" if mode == "PA" else "RGB")
        picture = source.convert(mode) if mode != "LA" else source.convert("L").convert("LA")
    wanted = pixels(open_image(picture))
    found = pixels(open_image(save_image(tmp_path / f"a.{suffix}", picture, quality=100)))
    assert abs(found.astype(int) - wanted).max() <= {"jpg": 4, "webp": 16, "gif": 16}.get(suffix, 1)


def test_deep_grey_stays_deep_where_the_format_allows(tmp_path):
    deep = Image.fromarray(np.array([[0, 1000, 65535]], dtype=np.uint16))
    for suffix in ("png", "tif"):
        with Image.open(save_image(tmp_path / f"a.{suffix}", deep)) as again:
            assert np.asarray(again).tolist() == [[0, 1000, 65535]]
