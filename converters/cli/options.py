"""The options and arguments of all commands, declared once: a word means the same everywhere.

Nothing heavy is imported: these are what `--help` and completion need.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Any, Literal

import typer

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
    "ReadFormat",
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
    "WriteFormat",
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

# The registries' own objects, WRITERS and READERS, would bring numpy.
WriteFormat = StrEnum(  # type: ignore[misc]
    "WriteFormat",
    {n: n for n in Registry("fastconv.converters.formats", "fastconv.writers", object).names()},
)
"""The formats that can be written."""
ReadFormat = StrEnum(  # type: ignore[misc]
    "ReadFormat",
    {n: n for n in Registry("fastconv.loaders.formats", "fastconv.readers", object).names()},
)
"""The formats that can be read."""

SAMPLE = re.compile(r"([0-9]+(?:\.[0-9]+)?)(%)|([0-9]+)", re.ASCII)


def parse_sample(text: str) -> int | float:
    """Returns how many samples are to be looked at: `500`, or as a float which share: `1%`.

    Raises:
        typer.BadParameter: It is neither.
    """
    found = SAMPLE.fullmatch(text)
    if found is None:
        raise typer.BadParameter(f"{text!r} is no number of samples: write 500, or 1%")
    if float(found[1] or found[3]) == 0 or (found[2] and float(found[1]) > 100):
        raise typer.BadParameter(f"{text!r} is not from 1 to all samples: write 500, or 1%")
    return float(found[1]) / 100 if found[2] else int(found[3])


SourceArgument = Annotated[
    str, typer.Argument(metavar="SRC", help="The folder of images.", show_default=False)
]
PackArgument = Annotated[
    str,
    typer.Argument(
        metavar="PACK", help="The pack: a file, or a folder of shards.", show_default=False
    ),
]

JsonOption = Annotated[
    bool,
    typer.Option(
        "--json", help="Print one JSON object on stdout and nothing else.", rich_help_panel=OUTPUT
    ),
]
QuietOption = Annotated[
    bool,
    typer.Option(
        "--quiet",
        "-q",
        help="Leave out progress, notes and summaries.",
        rich_help_panel=OUTPUT,
    ),
]
WorkersOption = Annotated[
    int | None,
    typer.Option(
        "--workers",
        metavar="N",
        min=1,
        help="Number of processes.",
        rich_help_panel=RUNNING,
        show_default="one a core",
    ),
]
BatchSizeOption = Annotated[
    int,
    typer.Option("--batch-size", metavar="N", min=1, help="Samples of a batch."),
]
DeviceOption = Annotated[
    str,
    typer.Option("--device", metavar="DEVICE", help="Where batches go: auto, cpu, cuda or cuda:1."),
]
PictureSizeOption = Annotated[
    int,
    typer.Option("--size", metavar="PIXELS", min=1, help="Rows and columns of a decoded picture."),
]
StepOption = Annotated[
    str,
    typer.Option(
        "--step",
        metavar="none|TIME|conv",
        help="The training step: none; a time, as 20ms, in which no core is busy; or conv, a small "
        "convolutional network on the device.",
    ),
]
OutputArgument = Annotated[
    str,
    typer.Argument(
        metavar="OUT",
        help="The pack to make. Its ending tells the format: .lmdb, .tar, .h5 ...",
        show_default=False,
    ),
]
ReportOption = Annotated[
    str | None,
    typer.Option(
        "--report",
        metavar="FILE",
        help="Write an HTML page with plots there.",
        rich_help_panel=OUTPUT,
        show_default=False,
    ),
]
SampleOption = Annotated[
    Any,
    typer.Option(
        "--sample",
        parser=parse_sample,
        metavar="N|N%",
        help="A quick look: only so many samples, or so many in a hundred, chosen by chance.",
        rich_help_panel=RUNNING,
        show_default="all",
    ),
]
SeedOption = Annotated[
    int,
    typer.Option(
        "--seed",
        metavar="N",
        min=0,
        help="With --sample, another number chooses other samples.",
        rich_help_panel=RUNNING,
    ),
]
OverwriteOption = Annotated[
    bool,
    typer.Option("--overwrite", help="Replace what is there.", rich_help_panel=RUNNING),
]
RestartOption = Annotated[
    bool,
    typer.Option(
        "--restart",
        help="Begin anew, instead of going on with what an unfinished run has left.",
        rich_help_panel=RUNNING,
    ),
]
ReadFormatOption = Annotated[
    ReadFormat | None,
    typer.Option(
        "--format",
        help="The pack's format, where its contents do not tell it.",
        rich_help_panel=FORMAT,
        show_default=False,
    ),
]
ImageKeyOption = Annotated[
    str | None,
    typer.Option(
        "--image-key",
        metavar="NAME",
        help="Of Parquet and TFRecord of others: the column or feature with the images.",
        show_default=False,
        rich_help_panel=FORMAT,
    ),
]
LabelKeyOption = Annotated[
    str | None,
    typer.Option(
        "--label-key",
        metavar="NAME",
        help="Of Parquet and TFRecord of others: the column or feature with the labels.",
        show_default=False,
        rich_help_panel=FORMAT,
    ),
]
WriteFormatOption = Annotated[
    WriteFormat | None,
    typer.Option(
        "--format",
        help="The format, where the ending of OUT does not tell it: a folder of shards.",
        rich_help_panel=FORMAT,
        show_default=False,
    ),
]
WriterOption = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        metavar="NAME=VALUE",
        help="A setting of the format's own. May be given several times.",
        rich_help_panel=FORMAT,
        show_default=False,
    ),
]
ShardSizeOption = Annotated[
    int | None,
    typer.Option(
        "--shard-size",
        parser=parse_size,
        metavar="SIZE",
        help="No shard is larger, unless one sample is: 256MB, 1GiB or bytes.",
        rich_help_panel=FORMAT,
        show_default="256MB",
    ),
]
ShardSamplesOption = Annotated[
    int | None,
    typer.Option(
        "--shard-samples",
        metavar="N",
        min=1,
        help="No shard holds more samples; all hold the same number or one less.",
        rich_help_panel=FORMAT,
        show_default=False,
    ),
]
IndexForOption = Annotated[
    list[str] | None,
    typer.Option(
        "--index-for",
        metavar="TOOL[,TOOL]",
        help="Write what other tools want beside the data files, as fastconv index does: dali, "
        "energon, timm, wids ...",
        rich_help_panel=FORMAT,
        show_default=False,
    ),
]
ResizeOption = Annotated[
    str | None,
    typer.Option(
        "--resize",
        metavar="short=N|long=N|WxH",
        help="Make images smaller: short=256 and long=256 set that side, 64x48 is width times "
        "height.",
        rich_help_panel=IMAGES,
        show_default=False,
    ),
]
FitOption = Annotated[
    Literal["cover", "contain", "stretch"] | None,
    typer.Option(
        "--fit",
        help="With WxH: cover cuts off what is over, contain fits in, stretch changes the shape.",
        rich_help_panel=IMAGES,
        show_default="cover",
    ),
]
EnlargeOption = Annotated[
    bool,
    typer.Option(
        "--enlarge", help="Make images larger, too, if they are small.", rich_help_panel=IMAGES
    ),
]
EncodeOption = Annotated[
    Literal["jpeg", "png", "webp", "raw"] | None,
    typer.Option(
        "--encode",
        help="Encode all images anew; raw: pixels, uint8 rows x columns x channels.",
        rich_help_panel=IMAGES,
        show_default="JPEG, PNG and WebP stay that, others become PNG",
    ),
]
QualityOption = Annotated[
    int | None,
    typer.Option(
        "--quality",
        metavar="N",
        min=1,
        max=100,
        help="Of JPEG and WebP.",
        rich_help_panel=IMAGES,
        show_default="90",
    ),
]
SubsamplingOption = Annotated[
    Literal["4:2:0", "4:2:2", "4:4:4"] | None,
    typer.Option(
        "--subsampling",
        help="How many of a JPEG's colours are stored.",
        rich_help_panel=IMAGES,
        show_default="4:2:0",
    ),
]
ColorOption = Annotated[
    Literal["keep", "rgb", "grey"] | None,
    typer.Option(
        "--color",
        help="Make all images rgb or grey; raw pixels are rgb unless they are to be grey.",
        rich_help_panel=IMAGES,
        show_default="keep",
    ),
]
BackgroundOption = Annotated[
    str | None,
    typer.Option(
        "--background",
        metavar="COLOR",
        help="Behind transparent pixels, in JPEG and raw: white, #ff8800 ...",
        rich_help_panel=IMAGES,
        show_default="white",
    ),
]
OrientationOption = Annotated[
    Literal["apply", "keep"] | None,
    typer.Option(
        "--orientation",
        help="Turn pixels upright as EXIF says, or keep the entry.",
        rich_help_panel=IMAGES,
        show_default="apply",
    ),
]
IccOption = Annotated[
    Literal["srgb", "keep"] | None,
    typer.Option(
        "--icc",
        help="Turn colours of other profiles into sRGB, or keep the profile.",
        rich_help_panel=IMAGES,
        show_default="srgb",
    ),
]
CheckOption = Annotated[
    Literal["fast", "decode"],
    typer.Option(
        "--check",
        help="fast: signature and header. decode: all pixels of every image.",
        rich_help_panel=CHECKING,
    ),
]
MaxPixelsOption = Annotated[
    int | None,
    typer.Option(
        "--max-pixels",
        metavar="N",
        min=1,
        help="With --check decode, larger images are bad.",
        rich_help_panel=CHECKING,
        show_default="178956970",
    ),
]
StrictOption = Annotated[
    bool,
    typer.Option(
        "--strict", help="Publish nothing when a single file is bad.", rich_help_panel=CHECKING
    ),
]
NoLabelsOption = Annotated[
    bool,
    typer.Option(
        "--no-labels",
        help="Folders are no classes: all labels are -1.",
        rich_help_panel=SELECTION,
    ),
]
LabelsFileOption = Annotated[
    str | None,
    typer.Option(
        "--labels",
        metavar="FILE",
        help="Take labels from a CSV or JSON Lines file with file_name and label.",
        rich_help_panel=SELECTION,
        show_default=False,
    ),
]
ClassesOption = Annotated[
    str | None,
    typer.Option(
        "--classes",
        metavar="PACK_OR_FILE",
        help="Number the classes as another pack does, or a text file with one a line.",
        rich_help_panel=SELECTION,
        show_default=False,
    ),
]
ClassOrderOption = Annotated[
    Literal["sorted", "natural"],
    typer.Option(
        "--class-order",
        help="sorted: as torchvision does. natural: digits count as numbers.",
        rich_help_panel=SELECTION,
    ),
]
SidecarOption = Annotated[
    list[str] | None,
    typer.Option(
        "--sidecar",
        metavar="EXT[,EXT]",
        help="Bring files of the same stem along, such as txt.",
        rich_help_panel=SELECTION,
        show_default=False,
    ),
]
AnyExtensionOption = Annotated[
    bool,
    typer.Option(
        "--any-extension",
        help="Look into files of any name, not only those with an image's extension.",
        rich_help_panel=SELECTION,
    ),
]
OnlyClassesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--only-classes",
        metavar="NAME[,NAME]",
        help="These classes alone, in their old order, numbered anew; or these integer labels.",
        rich_help_panel=SELECTION,
        show_default=False,
    ),
]
MinSizeOption = Annotated[
    int | None,
    typer.Option(
        "--min-size",
        metavar="PIXELS",
        min=1,
        help="Leave out images whose shorter side has fewer.",
        rich_help_panel=SELECTION,
        show_default=False,
    ),
]
ExcludeDuplicatesOption = Annotated[
    bool,
    typer.Option(
        "--exclude-duplicates",
        help="Of images that are the same byte for byte, take the first.",
        rich_help_panel=SELECTION,
    ),
]
ShuffleOption = Annotated[
    bool,
    typer.Option(
        "--shuffle",
        help="Order the samples by a hash of their paths.",
        rich_help_panel=SELECTION,
    ),
]
HashSeedOption = Annotated[
    int | None,
    typer.Option(
        "--seed",
        metavar="N",
        min=0,
        help="Of --shuffle and --split.",
        rich_help_panel=SELECTION,
        show_default="0",
    ),
]
LimitOption = Annotated[
    int | None,
    typer.Option(
        "--limit",
        metavar="N",
        min=1,
        help="Take the first N samples, of those shuffled with --shuffle.",
        rich_help_panel=SELECTION,
        show_default=False,
    ),
]
SplitOption = Annotated[
    list[str] | None,
    typer.Option(
        "--split",
        metavar="NAME=FRACTION,...",
        help="OUT becomes a folder of several packs, as train=0.9,val=0.1. The hash of its path "
        "tells where a sample goes: it stays there when others come, and duplicates may go apart. "
        "What is over is left out.",
        rich_help_panel=SELECTION,
        show_default=False,
    ),
]
StratifyOption = Annotated[
    bool,
    typer.Option(
        "--stratify",
        help="Split each class to exact shares; a sample that is added may then move others that "
        "lie at a border.",
        rich_help_panel=SELECTION,
    ),
]


def split_names(given: list[str] | None) -> list[str]:
    """Returns the names in what an option was given, separated by commas."""
    names = [name.strip() for text in given or [] for name in text.split(",")]
    return [name for name in names if name]
