"""Images: data sets, random crops and flips, and training of residual networks."""

from tessera._images import ImageSet, ImageSplit, load_images, random_crops, synthetic_images
from tessera._resnet_trainer import ResnetTrainer
from tessera._tessera import EpochResult, SampleScore

__all__ = [
    "EpochResult",
    "ImageSet",
    "ImageSplit",
    "ResnetTrainer",
    "SampleScore",
    "load_images",
    "random_crops",
    "synthetic_images",
]
