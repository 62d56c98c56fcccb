"""Enhancement operations, equal to Pillow's `ImageOps` and `ImageEnhance` to the last bit, batched.

Every function takes *levels*: images N x C x H x W of the whole numbers 0..255 held in float32, C = 1 (Pillow's mode L)
or 3 (RGB), and returns levels. `factor`, `cutoff` and the like are float64 tensors [N], one value per image, so that
the images of one batch can be treated differently. Where a name ends in `_` the result takes the place of the levels
given, which are lost: memory bounds these operations.

Float32 is exact here: sums of levels stay under 2**24, and where Pillow itself computes in C floats (`Image.blend`) the
same operations are made in the same order. Results are therefore independent of batch size and of device.
"""

from __future__ import annotations

import torch
from torch import Tensor

LEVELS = 256
_LUMA = (19595.0, 38470.0, 7471.0)  # ITU-R 601-2 in units of 1 / 65536


def brightness_(levels: Tensor, factor: Tensor) -> Tensor:
    """Blend with black: 0 is black, 1 the image, more is brighter."""
    return _settle_(levels.mul_(_column(factor)))


def color_(levels: Tensor, factor: Tensor) -> Tensor:
    """Blend with the grey version of the image: 0 is grey, 1 the image, more is more colourful."""
    return levels if levels.shape[1] == 1 else _blend_(levels, luma(levels), factor)


def contrast_(levels: Tensor, factor: Tensor) -> Tensor:
    """Blend with the mean grey level of the image: 0 is flat grey, 1 the image, more is more contrast."""
    grey = luma(levels)
    # Row sums are whole numbers that float32 holds exactly; their sum needs float64.
    total = grey.sum(dim=3).double().sum(dim=(1, 2))
    mean = (total / grey[0].numel() + 0.5).floor()
    return _blend_(levels, _column(mean), factor)


def sharpness(levels: Tensor, factor: Tensor) -> Tensor:
    """Blend with a smoothed version: 0 is smooth, 1 the image, more is sharper; the outermost pixels stay."""
    height, width = levels.shape[2:]
    # Rows end to end: neighbours are at fixed distances, and the sums run over long stretches of memory. At the
    # outermost columns they reach into another row, but those pixels stay as they were.
    flat = levels.flatten(2)
    inner = (height - 2) * width
    rows = flat[..., :inner] + flat[..., width : width + inner]
    rows += flat[..., 2 * width :]
    centre = flat[..., width + 1 : width + inner - 1]
    # The kernel weighs the centre 5 and its neighbours 1, over 13, and rounds: no quotient is near a half.
    smooth = torch.add(rows[..., 1:-1], centre, alpha=4.0)
    smooth += rows[..., :-2]
    smooth += rows[..., 2:]
    smooth.mul_(1.0 / 13.0).round_()
    sharp = torch.empty_like(levels, memory_format=torch.contiguous_format)
    blended = sharp.flatten(2)[..., width + 1 : width + inner - 1]
    _settle_(torch.sub(centre, smooth, out=blended).mul_(_column(factor)[..., 0]).add_(smooth))
    sharp[..., :: height - 1, :] = levels[..., :: height - 1, :]
    sharp[..., :: width - 1] = levels[..., :: width - 1]
    return sharp


def autocontrast_(levels: Tensor, cutoff: Tensor) -> Tensor:
    """Stretch each channel to 0..255 after leaving out `cutoff` percent of its pixels at either end."""
    pixels = levels[0, 0].numel()
    cut = (cutoff * pixels).div_(100.0, rounding_mode="floor").long()
    if cut.device.type == "cpu" and not cut.any():  # small images and cutoffs: no pixel is left out
        low, high = (bound(levels, dim=(2, 3), keepdim=True).double() for bound in (torch.amin, torch.amax))
    else:
        # The level of the first pixel kept, and of the last, in order of their levels.
        wanted = torch.stack([cut + 1, pixels - cut], dim=1)[:, None].repeat(1, levels.shape[1], 1)
        found = torch.searchsorted(histogram(levels).cumsum(dim=2), wanted)
        low, high = found.double()[..., None, None].unbind(2)
    # A true division: a number over a tensor would be the number times its rounded reciprocal.
    scale = torch.full_like(low, 255.0).div_(high - low)
    empty = low >= high
    offset = (-low * scale).masked_fill_(empty, 0.0)
    # Pillow's doubles, product and sum rounded one after the other: many results are whole numbers, or just below.
    stretched = levels.double().mul_(scale.masked_fill_(empty, 1.0)).add_(offset)
    return levels.copy_(stretched.floor_()).clamp_(0.0, 255.0)


def equalize(levels: Tensor) -> Tensor:
    """Flatten the histogram of each channel."""
    bins = _bins(levels)
    counts = histogram(levels, bins)
    through = counts.cumsum(dim=2)
    pixels = through[:, :, -1:].contiguous()
    brightest = torch.searchsorted(through, pixels)
    step = (pixels - counts.gather(2, brightest)).div(255, rounding_mode="floor")
    before = (through - counts).add_(step.div(2, rounding_mode="floor"))
    flat = _settle_(before.double().div_(step))
    ramp = torch.arange(LEVELS, device=levels.device, dtype=torch.float64)
    return _look_up(torch.where(step > 0, flat, ramp), bins, levels)


def solarize(levels: Tensor, threshold: Tensor) -> Tensor:
    """Invert the levels that reach the threshold."""
    inverted = 255.0 - levels
    return torch.where(levels < _column(threshold), levels, inverted, out=inverted)


def posterize_(levels: Tensor, bits: Tensor) -> Tensor:
    """Keep the highest `bits` bits, 1..8, of every level."""
    step = _column(1 << (8 - bits).long())
    return levels.div_(step).floor_().mul_(step)


def invert_(levels: Tensor) -> Tensor:
    """Return the negative."""
    return levels.neg_().add_(255.0)


def grayscale(levels: Tensor) -> Tensor:
    """Remove the colour; the number of channels stays."""
    return luma(levels).expand_as(levels).contiguous()


def red_shift_(levels: Tensor, amount: Tensor) -> Tensor:
    """Add a whole number of levels to the red channel, saturating."""
    return _shift_channel_(levels, amount, 0)


def green_shift_(levels: Tensor, amount: Tensor) -> Tensor:
    """Add a whole number of levels to the green channel, saturating."""
    return _shift_channel_(levels, amount, 1)


def blue_shift_(levels: Tensor, amount: Tensor) -> Tensor:
    """Add a whole number of levels to the blue channel, saturating."""
    return _shift_channel_(levels, amount, 2)


def luma(levels: Tensor) -> Tensor:
    """Return the grey version of RGB levels, N x 1 x H x W, in Pillow's fixed point; grey images are returned as is."""
    if levels.shape[1] == 1:
        return levels
    grey = levels[:, 0:1] * _LUMA[0]
    grey.add_(levels[:, 1:2], alpha=_LUMA[1]).add_(levels[:, 2:3], alpha=_LUMA[2])
    return grey.add_(32768.0).mul_(1.0 / 65536.0).floor_()


def histogram(levels: Tensor, bins: Tensor | None = None) -> Tensor:
    """Count the pixels at each level, N x C x 256 int64."""
    images, channels = levels.shape[:2]
    bins = _bins(levels) if bins is None else bins
    if levels.device.type == "cpu":
        return torch.bincount(bins, minlength=images * channels * LEVELS).view(images, channels, LEVELS)
    # Elsewhere a bincount would wait for the device to tell its largest number.
    counts = torch.zeros(images * channels * LEVELS, dtype=torch.int32, device=levels.device)
    one = torch.ones((), dtype=torch.int32, device=levels.device)
    return counts.index_add_(0, bins, one.expand_as(bins)).view(images, channels, LEVELS).long()


def _blend_(levels: Tensor, degenerate: Tensor, factor: Tensor) -> Tensor:
    """Return degenerate + factor * (levels - degenerate), in the order of Pillow's `Image.blend`.

    Product and sum are rounded one after the other; `lerp` and `addcmul` may round once, which changes levels.
    """
    return _settle_(levels.sub_(degenerate).mul_(_column(factor)).add_(degenerate))


def _settle_(values: Tensor) -> Tensor:
    """Clip and truncate to levels, in place."""
    return values.clamp_(0.0, 255.0).floor_()


def _column(values: Tensor) -> Tensor:
    """Spread one value per image over the image; Pillow's blend takes its factor as a 32-bit float."""
    return values.to(torch.float32)[:, None, None, None]


def _shift_channel_(levels: Tensor, amount: Tensor, channel: int) -> Tensor:
    if levels.shape[1] == 1:  # as Pillow would: to RGB, shift, back to L
        return luma(_shift_channel_(levels.repeat(1, 3, 1, 1), amount, channel))
    levels[:, channel].add_(_column(amount)[:, 0]).clamp_(0.0, 255.0)
    return levels


def _bins(levels: Tensor) -> Tensor:
    """Return the place of every level in a flat table N x C x 256, as int32."""
    rows = levels.shape[0] * levels.shape[1]
    start = torch.arange(rows, dtype=torch.int32, device=levels.device).mul_(LEVELS)
    return levels.to(torch.int32, memory_format=torch.contiguous_format).view(rows, -1).add_(start[:, None]).view(-1)


def _look_up(table: Tensor, bins: Tensor, levels: Tensor) -> Tensor:
    """Map levels through one table per image and channel, N x C x 256."""
    return table.to(torch.float32).reshape(-1).index_select(0, bins).view(levels.shape)
