"""Rules of averaging with neighbours that may be broken or malicious, by name: `MIXINGS`."""

from swiftfl.mixing.base import MIXINGS, MixRule, mix_by, mixing_named, mixing_rule
from swiftfl.mixing.by_distance import ClippedMixing, TrimmedMixing

__all__ = ["MIXINGS", "ClippedMixing", "MixRule", "TrimmedMixing", "mix_by", "mixing_named", "mixing_rule"]
