"""The options and arguments of all commands, declared once: a word means the same everywhere.

Nothing heavy is imported: these are what `--help` and completion need.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

import click

from fastconv.converters.cli.parameters import argument, option
from fastconv.converters.cli.sizes import parse_size
from fastconv.loaders.registry import Registry

__all__ = [
    "AnyExtensionOption",
    "BackgroundOption",
    "BatchSizeOption",
    "CheckOption",
    "ClassOrderOption",
    "ClassesOption",
    "ColorOption",
    "DeviceOption",
    "EncodeOption",
    "EnlargeOption",
    "ExcludeDuplicatesOption",
    "FitOption",
    "HashSeedOption",
    "IccOption",
    "IndexForOption",
    "JsonOption",
    "LabelsFileOption",
    "LimitOption",
    "MaxPixelsOption",
    "MinSizeOption",
    "NoLabelsOption",
    "OnlyClassesOption",
    "OrientationOption",
    "OutputArgument",
    "OverwriteOption",
    "PackArgument",
    "PictureSizeOption",
    "QualityOption",
    "QuietOption",
    "ReadFormatOption",
    "ReportOption",
    "ResizeOption",
    "RestartOption",
    "SampleOption",
    "SeedOption",
    "ShardSamplesOption",
    "ShardSizeOption",
    "ShuffleOption",
    "SidecarOption",
    "SourceArgument",
    "SplitOption",
    "StepOption",
    "StratifyOption",
    "StrictOption",
    "SubsamplingOption",
    "WorkersOption",
    "WriteFormatOption",
    "WriterOption",
    "split_names",
]

SELECTION = "What is packed"
CHECKING = "What is bad"
FORMAT = "Format"
IMAGES = "What images become (by default they stay as they are)"
RUNNING = "Running"
OUTPUT = "Output"


def writable() -> list[str]:
    """Returns the names of the formats that can be written; imports none of them."""
    return Registry("fastconv.converters.formats", "fastconv.writers", object).names()


def readable() -> list[str]:
    """Returns the names of the formats that can be read; imports none of them."""
    return Registry("fastconv.loaders.formats", "fastconv.readers", object).names()


SAMPLE = re.compile(r"([0-9]+(?:\.[0-9]+)?)(%)|([0-9]+)", re.ASCII)


def parse_sample(text: str) -> int | float:
    """Returns how many samples are to be looked at: `500`, or as a float which share: `1%`.

    Raises:
        click.BadParameter: It is neither.
    """
    found = SAMPLE.fullmatch(text)
    if found is None:
        raise click.BadParameter(f"{text!r} is no number of samples: write 500, or 1%")
    if float(found[1] or found[3]) == 0 or (found[2] and float(found[1]) > 100):
        raise click.BadParameter(f"{text!r} is not from 1 to all samples: write 500, or 1%")
    return float(found[1]) / 100 if found[2] else int(found[3])


SourceArgument = Annotated[str, argument(metavar="SRC", help="The folder of images.")]
PackArgument = Annotated[
    str,
    argument(metavar="PACK", help="The pack: a file, or a folder of shards."),
]

JsonOption = Annotated[
    bool,
    option("--json", help="Print one JSON object on stdout and nothing else.", panel=OUTPUT),
]
QuietOption = Annotated[
    bool,
    option(
        "--quiet",
        "-q",
        help="Leave out progress, notes and summaries.",
        panel=OUTPUT,
    ),
]
WorkersOption = Annotated[
    int | None,
    option(
        "--workers",
        metavar="N",
        min=1,
        help="Number of processes.",
        panel=RUNNING,
        show_default="one a core",
    ),
]
BatchSizeOption = Annotated[
    int,
    option("--batch-size", metavar="N", min=1, help="Samples of a batch."),
]
DeviceOption = Annotated[
    str,
    option("--device", metavar="DEVICE", help="Where batches go: auto, cpu, cuda or cuda:1."),
]
PictureSizeOption = Annotated[
    int,
    option("--size", metavar="PIXELS", min=1, help="Rows and columns of a decoded picture."),
]
StepOption = Annotated[
    str,
    option(
        "--step",
        metavar="none|TIME|conv",
        help="The training step: none; a time, as 20ms, in which no core is busy; or conv, a small "
        "convolutional network on the device.",
    ),
]
OutputArgument = Annotated[
    str,
    argument(
        metavar="OUT",
        help="The pack to make. Its ending tells the format: .lmdb, .tar, .h5 ...",
    ),
]
ReportOption = Annotated[
    str | None,
    option(
        "--report",
        metavar="FILE",
        help="Write an HTML page with plots there.",
        panel=OUTPUT,
        show_default=False,
    ),
]
SampleOption = Annotated[
    Any,
    option(
        "--sample",
        parser=parse_sample,
        metavar="N|N%",
        help="A quick look: only so many samples, or so many in a hundred, chosen by chance.",
        panel=RUNNING,
        show_default="all",
    ),
]
SeedOption = Annotated[
    int,
    option(
        "--seed",
        metavar="N",
        min=0,
        help="With --sample, another number chooses other samples.",
        panel=RUNNING,
    ),
]
OverwriteOption = Annotated[
    bool,
    option("--overwrite", help="Replace what is there.", panel=RUNNING),
]
RestartOption = Annotated[
    bool,
    option(
        "--restart",
        help="Begin anew, instead of going on with what an unfinished run has left.",
        panel=RUNNING,
    ),
]
ReadFormatOption = Annotated[
    str | None,
    option(
        "--format",
        choices=readable,
        help="The pack's format, where its contents do not tell it.",
        panel=FORMAT,
        show_default=False,
    ),
]
ImageKeyOption = Annotated[
    str | None,
    option(
        "--image-key",
        metavar="NAME",
        help="Of Parquet, TFRecord and tars of others: the column, feature or extension of images.",
        show_default=False,
        panel=FORMAT,
    ),
]
LabelKeyOption = Annotated[
    str | None,
    option(
        "--label-key",
        metavar="NAME",
        help="Of Parquet, TFRecord and tars of others: the column, feature or extension of labels.",
        show_default=False,
        panel=FORMAT,
    ),
]
WriteFormatOption = Annotated[
    str | None,
    option(
        "--format",
        choices=writable,
        help="The format, where the ending of OUT does not tell it: a folder of shards.",
        panel=FORMAT,
        show_default=False,
    ),
]
WriterOption = Annotated[
    list[str] | None,
    option(
        "--option",
        metavar="NAME=VALUE",
        help="A setting of the format's own. May be given several times.",
        panel=FORMAT,
        show_default=False,
    ),
]
ShardSizeOption = Annotated[
    int | None,
    option(
        "--shard-size",
        parser=parse_size,
        metavar="SIZE",
        help="No shard is larger, unless one sample is: 256MB, 1GiB or bytes.",
        panel=FORMAT,
        show_default="256MB",
    ),
]
ShardSamplesOption = Annotated[
    int | None,
    option(
        "--shard-samples",
        metavar="N",
        min=1,
        help="No shard holds more samples; all hold the same number or one less.",
        panel=FORMAT,
        show_default=False,
    ),
]
IndexForOption = Annotated[
    list[str] | None,
    option(
        "--index-for",
        metavar="TOOL[,TOOL]",
        help="Write what other tools want beside the data files, as fastconv index does: dali, "
        "energon, timm, wids ...",
        panel=FORMAT,
        show_default=False,
    ),
]
ResizeOption = Annotated[
    str | None,
    option(
        "--resize",
        metavar="short=N|long=N|WxH",
        help="Make images smaller: short=256 and long=256 set that side, 64x48 is width times "
        "height.",
        panel=IMAGES,
        show_default=False,
    ),
]
FitOption = Annotated[
    Literal["cover", "contain", "stretch"] | None,
    option(
        "--fit",
        help="With WxH: cover cuts off what is over, contain fits in, stretch changes the shape.",
        panel=IMAGES,
        show_default="cover",
    ),
]
EnlargeOption = Annotated[
    bool,
    option("--enlarge", help="Make images larger, too, if they are small.", panel=IMAGES),
]
EncodeOption = Annotated[
    Literal["jpeg", "png", "webp", "raw"] | None,
    option(
        "--encode",
        help="Encode all images anew; raw: pixels, uint8 rows x columns x channels.",
        panel=IMAGES,
        show_default="JPEG, PNG and WebP stay that, others become PNG",
    ),
]
QualityOption = Annotated[
    int | None,
    option(
        "--quality",
        metavar="N",
        min=1,
        max=100,
        help="Of JPEG and WebP.",
        panel=IMAGES,
        show_default="90",
    ),
]
SubsamplingOption = Annotated[
    Literal["4:2:0", "4:2:2", "4:4:4"] | None,
    option(
        "--subsampling",
        help="How many of a JPEG's colours are stored.",
        panel=IMAGES,
        show_default="4:2:0",
    ),
]
ColorOption = Annotated[
    Literal["keep", "rgb", "grey"] | None,
    option(
        "--color",
        help="Make all images rgb or grey; raw pixels are rgb unless they are to be grey.",
        panel=IMAGES,
        show_default="keep",
    ),
]
BackgroundOption = Annotated[
    str | None,
    option(
        "--background",
        metavar="COLOR",
        help="Behind transparent pixels, in JPEG and raw: white, #ff8800 ...",
        panel=IMAGES,
        show_default="white",
    ),
]
OrientationOption = Annotated[
    Literal["apply", "keep"] | None,
    option(
        "--orientation",
        help="Turn pixels upright as EXIF says, or keep the entry.",
        panel=IMAGES,
        show_default="apply",
    ),
]
IccOption = Annotated[
    Literal["srgb", "keep"] | None,
    option(
        "--icc",
        help="Turn colours of other profiles into sRGB, or keep the profile.",
        panel=IMAGES,
        show_default="srgb",
    ),
]
CheckOption = Annotated[
    Literal["fast", "decode"],
    option(
        "--check",
        help="fast: signature and header. decode: all pixels of every image.",
        panel=CHECKING,
    ),
]
MaxPixelsOption = Annotated[
    int | None,
    option(
        "--max-pixels",
        metavar="N",
        min=1,
        help="With --check decode, larger images are bad.",
        panel=CHECKING,
        show_default="178956970",
    ),
]
StrictOption = Annotated[
    bool,
    option("--strict", help="Publish nothing when a single file is bad.", panel=CHECKING),
]
NoLabelsOption = Annotated[
    bool,
    option(
        "--no-labels",
        help="Folders are no classes: all labels are -1.",
        panel=SELECTION,
    ),
]
LabelsFileOption = Annotated[
    str | None,
    option(
        "--labels",
        metavar="FILE",
        help="Take labels from a CSV or JSON Lines file with file_name and label.",
        panel=SELECTION,
        show_default=False,
    ),
]
ClassesOption = Annotated[
    str | None,
    option(
        "--classes",
        metavar="PACK_OR_FILE",
        help="Number the classes as another pack does, or a text file with one a line.",
        panel=SELECTION,
        show_default=False,
    ),
]
ClassOrderOption = Annotated[
    Literal["sorted", "natural"],
    option(
        "--class-order",
        help="sorted: as torchvision does. natural: digits count as numbers.",
        panel=SELECTION,
    ),
]
SidecarOption = Annotated[
    list[str] | None,
    option(
        "--sidecar",
        metavar="EXT[,EXT]",
        help="Bring files of the same stem along, such as txt.",
        panel=SELECTION,
        show_default=False,
    ),
]
AnyExtensionOption = Annotated[
    bool,
    option(
        "--any-extension",
        help="Look into files of any name, not only those with an image's extension.",
        panel=SELECTION,
    ),
]
OnlyClassesOption = Annotated[
    list[str] | None,
    option(
        "--only-classes",
        metavar="NAME[,NAME]",
        help="These classes alone, in their old order, numbered anew; or these integer labels.",
        panel=SELECTION,
        show_default=False,
    ),
]
MinSizeOption = Annotated[
    int | None,
    option(
        "--min-size",
        metavar="PIXELS",
        min=1,
        help="Leave out images whose shorter side has fewer.",
        panel=SELECTION,
        show_default=False,
    ),
]
ExcludeDuplicatesOption = Annotated[
    bool,
    option(
        "--exclude-duplicates",
        help="Of images that are the same byte for byte, take the first.",
        panel=SELECTION,
    ),
]
ShuffleOption = Annotated[
    bool,
    option(
        "--shuffle",
        help="Order the samples by a hash of their paths.",
        panel=SELECTION,
    ),
]
HashSeedOption = Annotated[
    int | None,
    option(
        "--seed",
        metavar="N",
        min=0,
        help="Of --shuffle and --split.",
        panel=SELECTION,
        show_default="0",
    ),
]
LimitOption = Annotated[
    int | None,
    option(
        "--limit",
        metavar="N",
        min=1,
        help="Take the first N samples, of those shuffled with --shuffle.",
        panel=SELECTION,
        show_default=False,
    ),
]
SplitOption = Annotated[
    list[str] | None,
    option(
        "--split",
        metavar="NAME=FRACTION,...",
        help="OUT becomes a folder of several packs, as train=0.9,val=0.1. The hash of its path "
        "tells where a sample goes: it stays there when others come, and duplicates may go apart. "
        "What is over is left out.",
        panel=SELECTION,
        show_default=False,
    ),
]
StratifyOption = Annotated[
    bool,
    option(
        "--stratify",
        help="Split each class to exact shares; a sample that is added may then move others that "
        "lie at a border.",
        panel=SELECTION,
    ),
]


def split_names(given: list[str] | None) -> list[str]:
    """Returns the names in what an option was given, separated by commas."""
    names = [name.strip() for text in given or [] for name in text.split(",")]
    return [name for name in names if name]
